"""The program that the emulated processor runs; the emulation itself is not run here."""

import subprocess

from draftwerk.model.native.build import SOURCES
from draftwerk.model.native.compiler import find_compiler
from draftwerk.model.native.isa import chosen
from tests.support.tiny_models import CASES, FAMILIES, ROPES
from validation.neon.cases import models
from validation.neon.emulator import DRIVER


def test_the_driver_compiles_with_the_kernels_interface() -> None:
    compiler = find_compiler()
    assert compiler is not None
    command = [*compiler.command, *compiler.flags(chosen()), "-fsyntax-only", f"-I{SOURCES}"]
    done = subprocess.run([*command, DRIVER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_family_and_rope_is_among_the_models() -> None:
    names = {name for name, _, _ in models()}
    assert names >= {
        *FAMILIES,
        *(name for name, (_, changes) in CASES.items() if "rope" in changes),
    }
    assert {changes.get("rope") for _, changes in CASES.values()} >= {*ROPES}
