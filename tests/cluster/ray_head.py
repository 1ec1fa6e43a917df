"""A Ray on this machine, of no Serve yet: `python -m tests.cluster.ray_head`.

It prints its address, and ends, with all that runs on it, when its input does.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

STOP_S = 60.0


@contextmanager
def ray_head() -> Iterator[str]:
    """Run it while the block lasts; yields the address."""
    command = [sys.executable, "-m", __name__]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    try:
        address = next(line for line in process.stdout if line.startswith("address "))
        yield address.split()[1]
    finally:
        process.stdin.close()
        process.wait(STOP_S)
        process.stdout.close()


def main() -> None:
    import ray

    from draftwerk_cluster.ray_serve.local import OBJECT_STORE_BYTES

    found = ray.init(
        address="local",
        include_dashboard=False,
        object_store_memory=OBJECT_STORE_BYTES,
        logging_level="warning",
    )
    print("address", found.address_info["gcs_address"], flush=True)
    sys.stdin.read()
    ray.shutdown()


if __name__ == "__main__":
    main()
