"""The program that the emulated processor runs; the emulation itself is not run here."""

import subprocess

from draftwerk.model.native.build import SOURCES
from draftwerk.model.native.compiler import find_compiler
from draftwerk.model.native.isa import chosen
from validation.neon.emulator import DRIVER


def test_the_driver_compiles_with_the_kernels_interface() -> None:
    compiler = find_compiler()
    assert compiler is not None
    command = [*compiler.command, *compiler.flags(chosen()), "-fsyntax-only", f"-I{SOURCES}"]
    done = subprocess.run([*command, DRIVER], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
