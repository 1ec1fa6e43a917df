"""Which compiler is found, and what it is told."""

import sys
from pathlib import Path

import pytest

from draftwerk.model.native import compiler
from draftwerk.model.native.compiler import Compiler, find_compiler, find_zig
from draftwerk.model.native.isa import ISAS, NativeUnavailable


def executable(path: Path, says: str) -> None:
    path.write_text(f"#!/bin/sh\necho '{says}'\n")
    path.chmod(0o755)


def test_a_compiler_of_the_system_comes_before_zig(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    zig = Compiler(("zig",), "Zig 1", is_zig=True)
    monkeypatch.setattr(compiler, "find_zig", lambda: zig)
    environment = {"PATH": str(tmp_path)}
    assert find_compiler(environment) == zig
    executable(tmp_path / "clang++", "clang 14")
    assert find_compiler(environment) == Compiler((str(tmp_path / "clang++"),), "clang 14")
    executable(tmp_path / "g++", "g++ 12")
    assert find_compiler(environment) == Compiler((str(tmp_path / "g++"),), "g++ 12")


def test_the_one_that_cxx_names_or_none(tmp_path: Path) -> None:
    executable(tmp_path / "g++", "g++ 12")
    executable(tmp_path / "mine", "mine 3")
    environment = {"PATH": str(tmp_path), "CXX": "mine"}
    assert find_compiler(environment) == Compiler((str(tmp_path / "mine"),), "mine 3")
    with pytest.raises(NativeUnavailable, match="CXX=other is not there"):
        find_compiler(environment | {"CXX": "other"})


def test_without_the_wheel_there_is_no_zig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "find_spec", lambda name: None)
    assert find_zig() is None


def test_zig_is_told_a_cpu_and_never_takes_the_one_it_runs_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiler, "find_spec", lambda name: object())
    monkeypatch.setattr(compiler, "version", lambda name: "9.9")
    monkeypatch.setattr(sys, "platform", "linux")
    zig = find_zig()
    assert zig is not None
    assert zig.version == "Zig 9.9"
    for isa in ISAS.values():
        flags = zig.flags(isa)
        assert f"-mcpu={isa.zig_cpu}" in flags
        assert any(flag.startswith(f"{isa.architecture}-linux-gnu") for flag in flags)
        assert {"-ffp-contract=off", "-g0"} <= {*flags}
