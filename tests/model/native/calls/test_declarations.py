"""What is read of the library's sources is what a compiler reads of them."""

import ctypes
import subprocess
from pathlib import Path

from draftwerk.model.native.build import SOURCES
from draftwerk.model.native.calls.declarations import enumerated, functions
from draftwerk.model.native.calls.structs import STRUCTS
from draftwerk.model.native.compiler import find_compiler
from draftwerk.model.native.isa import chosen

HEADERS = ("forward/model.h", "forward/copies.h", "draft_head/draft_tree.h", "sampling/answers.h")
ENUMERATIONS = ("Part", "Vector", "NormKind", "Activation", "HeadNorm", "RotaryRounding", "Mixer")


def test_structs_and_enumerations_are_the_compilers(tmp_path: Path) -> None:
    lines = [f'#include "{each}"' for each in (*HEADERS, "sampling/logprobs.h")]
    lines.append("#include <cstddef>")
    for name, struct in STRUCTS.items():
        lines.append(f"static_assert(sizeof({name}) == {ctypes.sizeof(struct)});")
        for field, kind in struct._fields_:
            own = getattr(struct, field)
            lines.append(f"static_assert(offsetof({name}, {field}) == {own.offset});")
            lines.append(f"static_assert(sizeof({name}::{field}) == {ctypes.sizeof(kind)});")
    for name in ENUMERATIONS:
        for number, each in enumerate(enumerated("forward/model.h", name)):
            lines.append(f"static_assert(static_cast<int>({name}::{each}) == {number});")
    source = tmp_path / "check.cpp"
    source.write_text("\n".join(lines))
    compiler = find_compiler()
    assert compiler is not None
    assert len(lines) > 200
    flags = (*compiler.flags(chosen()), f"-I{SOURCES}", "-fsyntax-only")
    subprocess.run([*compiler.command, *flags, str(source)], check=True)


def test_every_function_of_the_interface_is_read() -> None:
    found = {name: (result, arguments) for name, result, arguments in functions(STRUCTS)}
    text = "".join(path.read_text() for path in (SOURCES / "interface").glob("*.cpp"))
    parts = [each.split('}  // extern "C"')[0] for each in text.split('extern "C" {')[1:]]
    begun = [line for part in parts for line in part.splitlines() if line[:1].isalpha()]
    assert len(found) == len(begun) > 40
    assert all(each is not None for _, arguments in found.values() for each in arguments)
    batch = ctypes.POINTER(STRUCTS["Batch"])
    assert found["model_forward"] == (ctypes.c_char_p, [ctypes.c_void_p, batch])
    assert found["measure_stream"] == (ctypes.c_int64, [ctypes.c_void_p])
    assert found["pool_destroy"] == (None, [ctypes.c_void_p])
