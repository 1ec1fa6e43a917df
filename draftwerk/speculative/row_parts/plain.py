"""The base of what crosses to a device."""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound="Plain")


class Plain(msgspec.Struct, frozen=True, array_like=True):
    """Base of everything that crosses to a device: immutable, compact, comparable."""


def with_options(part: T, **options: Any) -> T:
    """Return a part of a round with other options in its field of that name."""
    whole: Any = part
    return msgspec.structs.replace(part, options=msgspec.structs.replace(whole.options, **options))
