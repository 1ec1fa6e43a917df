"""`python -m benchmarks.cluster.deployed`: what `draftwerk cluster deploy` runs, on its own Ray.

Arguments are settings, KEY=VALUE, as for `serve run draftwerk.cluster:app`. It ends with a signal.
"""

import signal
import sys
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise

from draftwerk.loadtest.server.launcher import Server, free_port, says_ready, serving


@asynccontextmanager
async def deployed(*flags: str) -> AsyncGenerator[Server]:
    """Serve with options of `draftwerk serve` while the block lasts, through Serve's proxy."""
    port = free_port()
    command = [sys.executable, "-m", __name__, f"port={port}", *values_of(flags)]
    async with serving(command, f"http://127.0.0.1:{port}", ready=says_ready) as server:
        yield server


def values_of(flags: Sequence[str]) -> list[str]:
    """Return `--name value` pairs as `name=value`; what stands alone is the model."""
    values: list[str] = []
    for before, word in pairwise(("", *flags)):
        if before.startswith("--"):
            values.append(f"{before[2:]}={word}")
        elif not word.startswith("--"):
            values.append(f"model={word}")
    return values


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal."""
    from ray import serve

    from draftwerk.cluster.cluster_settings import cluster_settings
    from draftwerk.cluster.ray_serve.deployments import application
    from draftwerk.cluster.ray_serve.local import local_ray

    words = sys.argv[1:] if arguments is None else arguments
    settings = cluster_settings(dict(each.split("=", 1) for each in words))
    stop = threading.Event()
    with local_ray(settings):
        for number in (signal.SIGTERM, signal.SIGINT):  # after Ray, which has handlers of its own
            signal.signal(number, lambda *_: stop.set())
        serve.run(application(settings), name=settings.app_name, route_prefix="/")
        stop.wait()
        serve.delete(settings.app_name)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
