"""Compiles the C++ sources once per machine, into the user's cache."""

import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent / "source"
FLAGS = (
    "-std=c++17",
    "-O3",
    "-ffp-contract=off",  # a fused multiply-add only where written: the same bits for 1 and 8 rows
    "-fno-math-errno",
    "-fPIC",
    "-shared",
    "-pthread",
    f"-I{SOURCES}",
)
AVX2 = ("avx2", "fma", "f16c", "bmi2")
AVX512 = (*AVX2, "avx512f", "avx512bw", "avx512dq", "avx512vl")
ISAS = {
    "avx2": AVX2,
    "avx2-vnni": (*AVX2, "avx_vnni"),
    "avx512": AVX512,
    "avx512-vnni": (*AVX512, "avx512_vnni"),
    "avx512-bf16": (*AVX512, "avx512_vnni", "avx512_bf16"),
}
"""What each instruction set needs, by Linux's names; a later one is faster."""


class NativeUnavailable(RuntimeError):
    """This machine cannot build or run the native kernels; torch can do their work."""


@functools.cache
def library_path(isa: str | None = None) -> Path:
    """Return the compiled library of an instruction set, building it if the sources are new.

    Without a name: the one that DRAFTWERK_ISA names, or the best that the CPU has.
    """
    flags = _cpu_flags()
    able = [name for name, needed in ISAS.items() if set(needed) <= set(flags)]
    wanted = isa or os.environ.get("DRAFTWERK_ISA") or (able[-1] if able else "avx2")
    if wanted not in able:
        raise NativeUnavailable(f"the CPU lacks {wanted}")
    path = _cache() / f"native-{wanted}-{_key(wanted)}.so"
    if not path.exists():
        _compile(path, _machine_flags(wanted))
    return path


def _machine_flags(isa: str) -> tuple[str, ...]:
    vectors = ("-mprefer-vector-width=512",) if isa.startswith("avx512") else ()
    names = (name.replace("avx_", "avx").replace("avx512_", "avx512") for name in ISAS[isa])
    return (*(f"-m{name}" for name in names), *vectors)


def _cpu_flags() -> tuple[str, ...]:
    if platform.machine() != "x86_64":
        raise NativeUnavailable(f"no kernels for {platform.machine()}")
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError as error:
        raise NativeUnavailable("cannot read which instructions the CPU has") from error
    line = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return tuple(sorted(line.partition(":")[2].split()))


def _cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "draftwerk"


def _key(isa: str) -> str:
    digest = hashlib.sha256(" ".join(FLAGS + _machine_flags(isa)).encode())
    for source in sorted(path for path in SOURCES.rglob("*") if path.is_file()):
        digest.update(str(source.relative_to(SOURCES)).encode() + source.read_bytes())
    return digest.hexdigest()[:16]


def _compile(path: Path, machine_flags: tuple[str, ...]) -> None:
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise NativeUnavailable("no C++ compiler (g++, or the one CXX names)")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Into a file of its own, then renamed: two processes may build at once.
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        built = Path(folder) / path.name
        sources = map(str, sorted(SOURCES.rglob("*.cpp")))
        command = [compiler, *FLAGS, *machine_flags, *sources, "-o", str(built)]
        outcome = subprocess.run(command, capture_output=True, text=True, check=False)
        if outcome.returncode != 0:
            raise NativeUnavailable(f"the C++ compiler failed:\n{outcome.stderr[-2000:]}")
        built.rename(path)
