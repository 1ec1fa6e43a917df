"""Which instruction set runs: the best that the CPU has, or the one asked for, or a refusal."""

from collections.abc import Callable

import pytest

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.native import isa
from draftwerk.model.native.isa import ISAS, NativeUnavailable, available, chosen, compared, named

ZEN_3 = frozenset(isa.V3_FEATURES)
SKYLAKE_X = frozenset(isa.V4_FEATURES)
ICE_LAKE = SKYLAKE_X | {"avx512_vnni"}
SAPPHIRE_RAPIDS = ICE_LAKE | {"avx_vnni", "avx512_bf16", "amx_bf16"}

Cpu = Callable[..., None]


@pytest.fixture
def cpu(monkeypatch: pytest.MonkeyPatch) -> Cpu:
    """Pretend to be another CPU."""

    def pretend(architecture: str, features: frozenset[str], vendor: str = "") -> None:
        monkeypatch.setattr(isa, "architecture", lambda: architecture)
        monkeypatch.setattr(isa, "cpu_vendor", lambda: vendor)
        monkeypatch.setattr(isa, "cpu_features", lambda: features)

    return pretend


@pytest.mark.parametrize(
    ("architecture", "features", "best"),
    [
        ("x86_64", ZEN_3, "avx2"),
        ("x86_64", ZEN_3 | {"avx_vnni"}, "avx2-vnni"),
        ("x86_64", SKYLAKE_X, "avx512"),
        ("x86_64", ICE_LAKE, "avx512-vnni"),
        ("x86_64", SAPPHIRE_RAPIDS, "avx512-bf16"),
        ("aarch64", frozenset({"asimd"}), "neon"),
        ("aarch64", frozenset({"asimd", "asimddp"}), "neon-dotprod"),
        ("aarch64", frozenset({"asimd", "asimddp", "i8mm"}), "neon-i8mm"),
    ],
)
def test_the_best_that_the_cpu_has_is_the_default(
    cpu: Cpu, architecture: str, features: frozenset[str], best: str
) -> None:
    cpu(architecture, features)
    assert chosen({}).name == best
    assert available()[-1].name == best
    for able in available():
        assert chosen({"DRAFTWERK_ISA": able.name}) == able


@pytest.mark.parametrize(
    ("vendor", "best"), [("GenuineIntel", "avx512-vnni"), ("AuthenticAMD", "avx512-bf16")]
)
def test_products_of_pairs_are_not_the_default_where_they_are_slow(
    cpu: Cpu, vendor: str, best: str
) -> None:
    cpu("x86_64", SAPPHIRE_RAPIDS, vendor)
    assert chosen({}).name == best
    assert "avx512-bf16" in {able.name for able in available()}
    assert [each.name for each in compared()] == ["avx2", "avx512", best]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("avx512", "this CPU lacks avx512f, avx512bw, avx512dq, avx512vl, avx512cd"),
        ("neon", "this CPU is x86_64, not aarch64"),
        ("sse", "it is not one of avx2, .*, none"),
    ],
)
def test_what_the_cpu_lacks_is_refused_by_name(cpu: Cpu, name: str, reason: str) -> None:
    cpu("x86_64", ZEN_3)
    with pytest.raises(Refused, match=f"DRAFTWERK_ISA={name}: {reason}"):
        chosen({"DRAFTWERK_ISA": name})
    with pytest.raises(Refused):
        named(name)


@pytest.mark.parametrize(
    ("architecture", "features", "reason"),
    [
        ("x86_64", ZEN_3 - {"fma"}, "the CPU lacks fma"),
        ("x86_64", frozenset[str](), "nothing tells which instructions"),
        ("riscv64", frozenset[str](), "no kernels for riscv64"),
    ],
)
def test_a_cpu_without_kernels_says_why(
    cpu: Cpu, architecture: str, features: frozenset[str], reason: str
) -> None:
    cpu(architecture, features)
    with pytest.raises(NativeUnavailable, match=reason):
        chosen({})


def test_the_kernels_can_be_switched_off() -> None:
    with pytest.raises(NativeUnavailable, match="DRAFTWERK_ISA=none switches them off"):
        chosen({"DRAFTWERK_ISA": "none"})


def test_flags_are_fixed_so_that_a_library_may_travel() -> None:
    for each in ISAS.values():
        assert not any("native" in flag for flag in each.flags)
        assert "native" not in each.zig_cpu
