"""The instruction sets that the kernels are compiled for, and which of them runs here.

Each has a fixed set of compiler flags, so that a library made on one machine runs on every CPU that
has the features named. All of them give the same bits.
"""

import os
from collections.abc import Mapping
from typing import NamedTuple

from draftwerk.machine.host import architecture, cpu_features, cpu_vendor
from draftwerk.model.checkpoint.unsupported import Refused

VARIABLE = "DRAFTWERK_ISA"
NONE = "none"
"""The value that switches the native kernels off."""


class NativeUnavailable(RuntimeError):
    """This machine cannot build or run the native kernels; torch can do their work."""


class Isa(NamedTuple):
    """One instruction set."""

    name: str
    architecture: str
    features: tuple[str, ...]
    """The features that the CPU must have, by Linux's names."""
    flags: tuple[str, ...]
    """For g++ and clang++."""
    zig_cpu: str
    """The same for `zig c++ -mcpu`, which ignores `-m` flags."""
    slow_on: tuple[str, ...] = ()
    """Makers of CPUs on which it is slower than the others."""


V3_FEATURES = ("avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe")
V3_FLAGS = ("-mavx2", "-mfma", "-mf16c", "-mbmi", "-mbmi2", "-mlzcnt", "-mpopcnt", "-mmovbe")
V4_FEATURES = (*V3_FEATURES, *(f"avx512{name}" for name in ("f", "bw", "dq", "vl", "cd")))
V4_FLAGS = (*V3_FLAGS, *(f"-mavx512{name}" for name in ("f", "bw", "dq", "vl", "cd")))
V4_TUNING = ("-mprefer-vector-width=512",)

ISAS = {
    isa.name: isa
    for isa in (
        Isa("avx2", "x86_64", V3_FEATURES, V3_FLAGS, "x86_64_v3"),
        Isa(
            "avx2-vnni",
            "x86_64",
            (*V3_FEATURES, "avx_vnni"),
            (*V3_FLAGS, "-mavxvnni"),
            "x86_64_v3+avxvnni",
        ),
        Isa("avx512", "x86_64", V4_FEATURES, (*V4_FLAGS, *V4_TUNING), "x86_64_v4"),
        Isa(
            "avx512-vnni",
            "x86_64",
            (*V4_FEATURES, "avx512_vnni"),
            (*V4_FLAGS, "-mavx512vnni", *V4_TUNING),
            "x86_64_v4+avx512vnni",
        ),
        Isa(
            "avx512-bf16",
            "x86_64",
            (*V4_FEATURES, "avx512_vnni", "avx512_bf16"),
            (*V4_FLAGS, "-mavx512vnni", "-mavx512bf16", *V4_TUNING),
            "x86_64_v4+avx512vnni+avx512bf16",
            # VDPBF16PS makes half as many products there as multiply-adds do.
            slow_on=("GenuineIntel",),
        ),
        Isa("neon", "aarch64", ("asimd",), ("-march=armv8-a",), "generic"),
        Isa(
            "neon-dotprod",
            "aarch64",
            ("asimd", "asimddp"),
            ("-march=armv8.2-a+dotprod",),
            "generic+v8_2a+dotprod",
        ),
        Isa(
            "neon-i8mm",
            "aarch64",
            ("asimd", "asimddp", "i8mm"),
            ("-march=armv8.2-a+dotprod+i8mm",),
            "generic+v8_2a+dotprod+i8mm",
        ),
    )
}
"""By name; of one architecture, a later one is faster, but for those that are slow on a CPU."""
BASES = ("avx2", "avx512", "neon")
"""The widths of registers; the others do the same with a few more instructions."""


def available() -> list[Isa]:
    """Return the instruction sets of this CPU, the fastest last."""
    here, features, vendor = architecture(), cpu_features(), cpu_vendor()
    able = [isa for isa in ISAS.values() if isa.architecture == here]
    able = [isa for isa in able if not _lacking(isa, features)]
    return sorted(able, key=lambda isa: vendor not in isa.slow_on)


def compared() -> list[Isa]:
    """Return what `make test` compares: the bases, and the fastest of this CPU, which is last."""
    able = available()
    return [isa for isa in able if isa.name in BASES or isa == able[-1]]


def chosen(environment: Mapping[str, str] = os.environ) -> Isa:
    """Return the instruction set that DRAFTWERK_ISA names, or the best that the CPU has.

    Raises Refused for a name that is unknown or that this CPU lacks, NativeUnavailable where there
    is none.
    """
    name = environment.get(VARIABLE, "")
    if name == NONE:
        raise NativeUnavailable(f"{VARIABLE}={NONE} switches them off")
    if name:
        return named(name)
    if able := available():
        return able[-1]
    raise NativeUnavailable(_why_none())


def named(name: str) -> Isa:
    """Return an instruction set of this CPU by name. Raises Refused."""
    isa = ISAS.get(name)
    if isa is None:
        raise Refused(f"{VARIABLE}={name}: it is not one of {', '.join((*ISAS, NONE))}")
    if isa.architecture != architecture():
        raise Refused(f"{VARIABLE}={name}: this CPU is {architecture()}, not {isa.architecture}")
    if lacking := _lacking(isa, cpu_features()):
        raise Refused(f"{VARIABLE}={name}: this CPU lacks {', '.join(lacking)}")
    return isa


def _lacking(isa: Isa, features: frozenset[str]) -> list[str]:
    return [feature for feature in isa.features if feature not in features]


def _why_none() -> str:
    here = architecture()
    least = next((isa for isa in ISAS.values() if isa.architecture == here), None)
    if least is None:
        return f"there are no kernels for {here}"
    features = cpu_features()
    if not features:
        return "nothing tells which instructions the CPU has"
    return f"the CPU lacks {', '.join(_lacking(least, features))}"
