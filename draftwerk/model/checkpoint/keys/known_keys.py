"""A closed list of keys: a file with any other is refused by that key's name."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from draftwerk.model.checkpoint.unsupported import Refused

SHOWN = 60
"""Characters of a value in a message."""


class KnownKeys(NamedTuple):
    """The keys that one kind of file may have."""

    read: frozenset[str] = frozenset()
    without_effect: Mapping[str, str] = {}
    """By key, why it changes no text."""
    only: Mapping[str, tuple[Any, ...]] = {}
    """Keys that are served at these values, which ask for nothing."""

    def unknown(self, fields: Mapping[str, Any]) -> Iterator[str]:
        """Yield the keys that are not known, or not at their values; null asks for nothing."""
        for key, value in fields.items():
            known = key in self.read or key in self.without_effect
            if value is not None and not known and value not in self.only.get(key, ()):
                yield key

    def check(self, fields: Mapping[str, Any], where: str = "") -> None:
        """Raise Refused, naming the first key that is not known."""
        for key in self.unknown(fields):
            raise Refused(f"{where}{key} {shown(fields[key])} is not supported")


NO_OTHERS = KnownKeys()


def shown(value: Any) -> str:
    """Return a value for people, cut where it is long."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def because(reason: str, *keys: str) -> dict[str, str]:
    """Return keys with the reason why they change no text."""
    return dict.fromkeys(keys, reason)
