"""Fields that are known and not served: which of a body ask for something."""

from collections.abc import Iterable
from functools import cache

import msgspec
from msgspec import Struct

from draftwerk.api.replying.field_types import RAW_HARMLESS_MAX, SAYS_NOTHING, UNSENT, RefusedField


def instead_of(body: Struct, field: str) -> str:
    """Return the end of a refusal's sentence: what to use in place of the field."""
    instead: dict[str, str] = getattr(body, "instead", {})
    return f"; use {instead[field]}." if field in instead else "."


def refused_fields(body: Struct) -> Iterable[str]:
    """Name the fields that are known, not served, and asked for."""
    for name in _raw_fields(type(body)):
        value = getattr(body, name)
        if value is UNSENT:
            continue
        harmless: dict[str, tuple[bytes, ...]] = getattr(body, "harmless", {})
        if not _says_nothing(bytes(value), harmless.get(name)):
            yield name


@cache
def _raw_fields(kind: type[Struct]) -> tuple[str, ...]:
    return tuple(each.name for each in msgspec.structs.fields(kind) if each.type is RefusedField)


def _says_nothing(raw: bytes, harmless: tuple[bytes, ...] | None) -> bool:
    if len(raw) > RAW_HARMLESS_MAX:
        return False
    compact = msgspec.json.format(raw, indent=-1) if raw else b""
    if compact == b"false" and b"true" in (harmless or ()):
        return False  # a switch that is on
    return compact in SAYS_NOTHING or compact in (harmless or ())
