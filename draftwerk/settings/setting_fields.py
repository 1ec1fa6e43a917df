"""The parts of a setting: sizes, descriptions for the command line, sentences that refuse."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from draftwerk.settings.field_faults import fault_of

SIZE_MAX = 2**63
"""More bytes than anything holds; a longer row of digits would be no number at all."""
UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
SIZE = re.compile(r"^(\d+(?:\.\d+)?) *([KMGT]?)i?B?$")
SIZE_METAVAR = "SIZE"
SIZE_PATTERN = r"^\d+(\.\d+)? *[KMGT]?i?B?$"
Bytes = Annotated[str, Meta(pattern=SIZE_PATTERN, extra={"metavar": SIZE_METAVAR})]
Seconds = Annotated[float, Meta(ge=0, le=86400)]
Strings = tuple[str, ...]
S = TypeVar("S", bound=Struct)


class ConfigError(Exception):
    """A setting that cannot be; the message is for the person who starts the server."""


def bytes_of(size: str) -> int:
    """Return a size such as `2GiB`, `512M` or `4096` in bytes; units are powers of 1024."""
    found = SIZE.match(size)
    if not found:
        raise ConfigError(f"{size!r} is not a size; write for example 2GiB")
    return int(min(float(found[1]) * UNITS[found[2]], SIZE_MAX))


def converted(values: Mapping[str, Any], kind: type[S]) -> S:
    """Return settings of known names, checked one by one; raises ConfigError."""
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(_sentence(str(error), values, kind)) from None


def _sentence(message: str, given: Mapping[str, Any], kind: type[Struct]) -> str:
    """Return a sentence about the setting that is wrong and the values it may have."""
    error = fault_of(message, kind)
    field = fields_of(kind).get(error.param or "")
    if field is not None and field.metavar == SIZE_METAVAR:
        return f"`{field.name}` must be a size such as 2GiB, not {given[field.name]!r}"
    return error.message


class SettingField(Struct, frozen=True):
    """One field of Settings, as the command line needs it."""

    name: str
    type: Any
    default: Any
    description: str
    metavar: str | None

    @property
    def flag(self) -> str:
        """How the field is written on the command line."""
        return "--" + self.name.replace("_", "-")


def fields_of(struct: type[Struct]) -> dict[str, SettingField]:
    """Return a Struct's fields with their descriptions, by name."""
    return {each.name: _field(each) for each in msgspec.structs.fields(struct)}


def _field(found: msgspec.structs.FieldInfo) -> SettingField:
    kind: Any = found.type
    description, metavar = "", None
    for meta in getattr(kind, "__metadata__", ()):
        extra: dict[str, str] = meta.extra or {}
        description = meta.description or description
        metavar = extra.get("metavar", metavar)
    return SettingField(
        found.name, getattr(kind, "__origin__", kind), found.default, description, metavar
    )
