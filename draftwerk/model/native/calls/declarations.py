"""Declarations of the library's sources, as ctypes has it: structs, enumerations and functions."""

import ctypes
import functools
import re
from collections.abc import Iterator, Mapping
from ctypes import c_void_p
from typing import Any

from draftwerk.model.native.build import SOURCES

INTERFACE = ("interface/abi.cpp", "interface/stored.cpp")
"""The sources whose functions are called from here."""
FUNCTION = re.compile(r"^(?P<result>[\w ]+?[ *]+)(?P<name>\w+)\((?P<arguments>[^()]*)\) {", re.M)
FIELDS = re.compile(r"(?P<kind>[\w ]+?) (?P<names>[\w*, \[\]\n]+)")
Structs = Mapping[str, type[ctypes.Structure]]
"""By the library's names of them."""


@functools.cache
def _source(path: str) -> str:
    """Return a source without its comments."""
    return re.sub(r" *//.*", "", (SOURCES / path).read_text(encoding="utf-8"))


def _body(header: str, what: str) -> str:
    found = re.search(rf"^{what} {{(.*?)}};", _source(header), re.M | re.S)
    assert found is not None, f"{header} has no {what}"
    return found[1]


def enumerated(header: str, name: str) -> tuple[str, ...]:
    """Return the names of an enumeration, whose numbers are their places."""
    return tuple(each.strip() for each in _body(header, f"enum class {name}").split(","))


def fields(header: str, name: str, structs: Structs) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a struct, as `_fields_` of `Structure` has them."""
    for declaration in _body(header, f"struct {name}").split(";"):
        found = FIELDS.fullmatch(declaration.strip().removeprefix("const "))
        if found is None:  # a method
            continue
        for each in re.split(r",\s*", found["names"]):
            stem, _, count = each.strip("*]").partition("[")
            kind = c_void_p if "*" in each else _type(found["kind"], structs)
            yield stem, kind * int(count) if count else kind


def functions(structs: Structs) -> Iterator[tuple[str, Any, list[Any]]]:
    """Yield the name of each function, the type of its result, and those of its arguments."""
    for path in INTERFACE:
        _, interface = _source(path).split('extern "C" {')
        for found in FUNCTION.finditer(interface):
            arguments = re.split(r",\s*", found["arguments"])
            types = [_type(each, structs) for each in arguments]
            yield found["name"], _type(found["result"], structs), types


def _type(declared: str, structs: Structs) -> Any:
    """Return the type of a result, or of a declaration such as `const float *values`."""
    kind = declared.removeprefix("const ").split()[0]
    struct = structs.get(kind)
    if "*" not in declared:
        return struct or getattr(ctypes, f"c_{kind.removesuffix('_t')}", None)
    if kind == "char":
        return ctypes.c_char_p
    return c_void_p if struct is None else ctypes.POINTER(struct)
