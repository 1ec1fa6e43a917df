"""Blending: what of a prompt is reused from elsewhere, and what of that is computed again.

    prompt    text | segment        | text | segment           | text
    canonical      |<- blocks ->|   |      |<- blocks ->|      |

A segment's canonical keys and values are those of its tokens read alone, as far as they fill
blocks; the rest of it is read where it stands, as all other text is. A rule names the canonical
tokens that are computed again where they stand. Nothing here depends on what is cached.

CacheBlend (Yao et al., arXiv 2405.16444) computes again the tokens whose keys and values deviate
most in a low layer (HKVD); EPIC (Hu et al., arXiv 2410.15332) the first of each segment. Prompt
Cache (Gim et al., arXiv 2311.04934) leaves segments as they are, at places of their own.
"""

from collections.abc import Sequence
from math import ceil
from typing import Literal, NamedTuple

import msgspec

RuleName = Literal["hkvd", "head", "none", "modules"]
RULES: tuple[RuleName, ...] = ("hkvd", "head", "none", "modules")
RULE: RuleName = "hkvd"
RATIO = 0.15
"""What `blend: true` stands for: a rule, and the share of the canonical tokens that it computes
again."""
CHECK_LAYER = 1
"""The layer whose keys and values are compared; those below and its own are computed for all
tokens."""


class Blend(msgspec.Struct, frozen=True, array_like=True):
    """What a request declared: its segments, and by which rule they are reused."""

    spans: tuple[tuple[int, int], ...]
    """(start, stop) of each segment in the prompt's tokens, ascending."""
    rule: RuleName = RULE
    ratio: float = RATIO
    """Share of the canonical tokens that is computed again."""

    @property
    def recomputes(self) -> bool:
        """Whether the rule computes any canonical token again."""
        return self.rule in ("hkvd", "head") and self.ratio > 0

    @property
    def probes(self) -> bool:
        """Whether the choice depends on the lowest layers of all tokens."""
        return self.rule == "hkvd" and self.recomputes


class CanonicalPart(NamedTuple):
    """The canonical tokens of a segment, by their places in the prompt."""

    start: int
    stop: int

    @property
    def length(self) -> int:
        return self.stop - self.start


def canonical_parts(blend: Blend, prompt_count: int, block_size: int) -> tuple[CanonicalPart, ...]:
    """Return the whole blocks of each segment that has some; never the prompt's last token."""
    parts: list[CanonicalPart] = []
    for start, stop in blend.spans:
        count = (min(stop, prompt_count - 1) - start) // block_size * block_size
        if count > 0:
            parts.append(CanonicalPart(start, start + count))
    return tuple(parts)


def segment_space(blend: Blend, start: int, name_space: str) -> str:
    """Return the name space of a segment's blocks, as a prompt of its own has it.

    One that is read at positions of its own is found there alone.
    """
    return f"{name_space} at {start}" if blend.rule == "modules" and start else name_space


def choose_positions(
    blend: Blend, parts: Sequence[CanonicalPart], deviations: Sequence[float] = ()
) -> frozenset[int]:
    """Return the canonical tokens that are computed again, by their places in the prompt.

    `deviations` are of all canonical tokens in order; only the rule that probes reads them. Of
    equal ones the first is chosen.
    """
    if not blend.recomputes:
        return frozenset()
    if blend.rule == "head":
        return frozenset(
            place
            for part in parts
            for place in range(part.start, part.start + ceil(blend.ratio * part.length))
        )
    places = [place for part in parts for place in range(part.start, part.stop)]
    ordered = sorted(zip((-each for each in deviations), places, strict=True))
    return frozenset(place for _, place in ordered[: ceil(blend.ratio * len(places))])


def check_blend(blend: Blend) -> None:
    """Assert that the segments are in order and apart."""
    before = 0
    for start, stop in blend.spans:
        assert before <= start < stop, "segments overlap"
        before = stop
    assert 0 <= blend.ratio <= 1 and blend.rule in RULES
