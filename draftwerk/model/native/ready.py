"""Ready-made libraries beside the sources, for machines without a compiler and for wheels.

    python -m draftwerk.model.native.ready [ISA ...]

compiles each instruction set, or those named, with Zig's compiler (`pip install ziglang`), which
builds for every architecture. A wheel made afterwards holds them; they are loaded while the sources
are those that they were made of. The bits are those of a library compiled on the spot.
"""

import argparse
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from draftwerk.model.native.build import READY, SOURCES, ready_path, seal
from draftwerk.model.native.compiler import Compiler, compile_library, find_zig
from draftwerk.model.native.isa import ISAS, Isa


def make(compiler: Compiler, isa: Isa) -> Path:
    """Compile one library into the package, in place of what older sources gave."""
    READY.mkdir(exist_ok=True)
    target = ready_path(isa)
    with TemporaryDirectory(dir=READY) as folder:
        made = Path(folder) / target.name
        compile_library(compiler, isa, SOURCES, Path(folder), made)
        seal(made)
        for old in READY.glob(f"{isa.name}-{'?' * 16}.so"):
            old.unlink()
        made.rename(target)
    return target


def main() -> int:
    parser = argparse.ArgumentParser(description="Compile the kernels into the package.")
    parser.add_argument("isa", nargs="*", help=f"of {', '.join(ISAS)}; default: all")
    names = parser.parse_args().isa or list(ISAS)
    if unknown := [name for name in names if name not in ISAS]:
        parser.error(f"no instruction set {', '.join(unknown)}")
    compiler = find_zig()
    if compiler is None:
        print("Zig's compiler is not here: pip install ziglang", file=sys.stderr)
        return 1
    for name in names:
        path = make(compiler, ISAS[name])
        print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
