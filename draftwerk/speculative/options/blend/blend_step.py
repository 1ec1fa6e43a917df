"""The next step of a blended prompt, part by part."""

from dataclasses import dataclass
from typing import NamedTuple

from draftwerk.cache.memory import SequenceMemory
from draftwerk.speculative.options.blend.rules import CanonicalPart
from draftwerk.speculative.row_parts.row_blend import RowBlend


class SegmentUse(NamedTuple):
    """How a declared segment was come by; counts of tokens."""

    tokens: int
    found: int
    """The tokens of them in the cache, read before."""
    kept: int
    """The tokens of them that are not computed where they stand."""


PROBE_MAX = 1024
"""Tokens that a row probes at most: each costs the lowest layers alone."""


@dataclass(slots=True)
class PartState:
    """One part, while its memory is held."""

    part: CanonicalPart
    memory: SequenceMemory | None = None
    read: int = 0
    """Slots of it that hold their keys and values."""

    @property
    def ready(self) -> bool:
        return self.read == self.part.slots


@dataclass(slots=True)
class BlendStep:
    """The work of the next row: it covers slots start .. stop of the sequence."""

    start: int
    stop: int
    row: RowBlend
    cost: int
    """Tokens computed."""


def release(state: PartState) -> None:
    if state.memory is not None:
        state.memory.leave()
        state.memory = None
