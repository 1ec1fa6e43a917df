"""The base of what crosses to a device."""

import msgspec


class Plain(msgspec.Struct, frozen=True, array_like=True):
    """Base of everything that crosses to a device: immutable, compact, comparable."""
