"""Fields of the classes of Transformers that are served, and their defaults.

`class_fields.json` is written by `python -m validation.config_classes`.
"""

from functools import cache
from pathlib import Path
from typing import Any

import msgspec

FILE = Path(__file__).with_suffix(".json")


class ClassFields(msgspec.Struct, frozen=True):
    """The fields of the config of one class."""

    defaults: dict[str, Any]
    """By field, but for those without effect; with the rule of rotation if that is the class's."""
    without_default: tuple[str, ...]
    theta: float
    """The base of the rotation, where a config names none."""
    local_theta: float | None
    """The base of layers that slide, where that is another."""
    rules_by_kind: bool
    """Whether layers that slide have a rule of rotation of their own."""
    rotary_share: float | None
    """The share of a head's dimensions that turn, where a config names none; None: it may name
    none."""
    ends: int | tuple[int, ...] | None
    """Tokens that end a text where no file names any."""

    @property
    def names(self) -> frozenset[str]:
        return frozenset((*self.defaults, *self.without_default))


class _Table(msgspec.Struct, frozen=True):
    classes: dict[str, ClassFields]
    generation: tuple[str, ...]


@cache
def _table() -> _Table:
    return msgspec.json.decode(FILE.read_bytes(), type=_Table)


def fields_of(name: str) -> ClassFields:
    """Return those of a class that has a row, or is a wrapper of one that has."""
    return _table().classes[name]


@cache
def all_names() -> frozenset[str]:
    """Return the fields of all classes together."""
    return frozenset().union(*(each.names for each in _table().classes.values()))


def generation_names() -> tuple[str, ...]:
    """Return fields of generation, which Transformers drops where they stand in a config."""
    return _table().generation
