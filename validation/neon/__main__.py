"""Whether the NEON kernels compute this machine's bits: `python -m validation.neon`.

The kernels are compiled for AArch64, with and without its dot products, together with a driver that
replays calls from a file, and run by QEMU's user emulation. Compared are logits and hidden states
of tiny models of every family, in all formats of weights, keys and values, through chunks, single
tokens, trees and branches; sampled tokens, log-probabilities and draft trees; products with a
GGUF's own blocks. QEMU leaves denormal numbers as they are, where the kernels of this machine flush
them; some models' values are so small that it would show.

Needs `apt install qemu-user g++-aarch64-linux-gnu`; without that compiler, `pip install ziglang`.
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from draftwerk.model.native.pool import Pool
from validation.neon.cases import drafting, forward, models, sampling, stored
from validation.neon.emulator import MACHINES, Missing, build, replay
from validation.neon.script import Script

Results = list[tuple[str, bytes]]


def write_scripts(folder: Path, pool: Pool) -> dict[Path, Results]:
    """Write a script for each model and one for the rest; return this machine's results."""
    written: dict[Path, Results] = {}
    for number, model in enumerate(models()):
        path = folder / f"model-{number}"
        script = Script(path)
        written[path] = list(forward(model, script, pool))
        script.close()
    path = folder / "sampling"
    script = Script(path)
    written[path] = [*sampling(script, pool), *drafting(script, pool), *stored(script, pool)]
    script.close()
    return written


def differing(found: bytes, expected: Results) -> list[str]:
    """Return what the emulated processor computed otherwise."""
    names: list[str] = []
    at = 0
    for name, results in expected:
        if found[at : at + len(results)] != results:
            names.append(name)
        at += len(results)
    if at != len(found):
        names.append("the number of results")
    return names


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the NEON kernels with this machine's.")
    parser.add_argument("--isa", choices=MACHINES, action="append")
    arguments = parser.parse_args()
    failures = 0
    with TemporaryDirectory() as name:
        folder = Path(name)
        scripts = write_scripts(folder, Pool(2))
        count = sum(len(results) for results in scripts.values())
        for isa in arguments.isa or MACHINES:
            try:
                driver = build(isa, folder)
            except Missing as error:
                print(error)
                return 2
            wrong = [
                name
                for script, results in scripts.items()
                for name in differing(replay(driver, script), results)
            ]
            print(f"{isa}: {count - len(wrong)} of {count} results are the same bits", flush=True)
            for name in wrong:
                print(f"  differs: {name}")
            failures += len(wrong)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
