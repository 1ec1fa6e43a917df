"""Blending: what of a prompt is reused from elsewhere, and what of that is computed again.

    prompt    text | segment        | text | segment           | text
    canonical      |<- blocks ->|   |      |<- blocks ->|      |

A segment's canonical keys and values are those of its tokens read right behind the prompt's first
tokens, as far as they fill blocks; the rest of it is read where it stands, as all other text is. A
rule names the canonical tokens that are computed again where they stand. Nothing here depends on
what is cached.

CacheBlend (Yao et al., arXiv 2405.16444) computes again the tokens whose keys and values deviate
most in a low layer (HKVD); EPIC (Hu et al., arXiv 2410.15332) the first of each segment. Both read
a segment alone: then its first tokens draw the attention that a prompt's first tokens have.
"""

from collections.abc import Sequence
from math import ceil
from typing import NamedTuple

from draftwerk.speculative.requests.declared_segments import RULES, Blend

CHECK_LAYER = 1
"""The layer whose keys and values are compared; those below and its own are computed for all
tokens."""

BEGINNING = 16
"""Tokens of the prompt that a segment is read behind: few, so that other prompts begin with them
too."""


class CanonicalPart(NamedTuple):
    """The canonical tokens of a segment, by their places in the prompt."""

    start: int
    stop: int
    beginning: int = 0
    """The prompt's first tokens that it is read behind."""

    @property
    def length(self) -> int:
        return self.stop - self.start

    @property
    def slots(self) -> int:
        """Slots of its table: those of the beginning, then its own."""
        return self.beginning + self.length

    @property
    def turn(self) -> int:
        """Positions from where it is read to where it stands."""
        return self.start - self.beginning

    def text(self, tokens: Sequence[int]) -> list[int]:
        """Return what is read: the beginning, then its own tokens."""
        return [*tokens[: self.beginning], *tokens[self.start : self.stop]]


def canonical_parts(blend: Blend, prompt_count: int, block_size: int) -> tuple[CanonicalPart, ...]:
    """Return of each segment what fills blocks, behind the beginning; never the prompt's last
    token."""
    parts: list[CanonicalPart] = []
    first = min((start for start, _ in blend.spans), default=0)
    beginning = min(first, BEGINNING)
    for start, stop in blend.spans:
        slots = beginning + min(stop, prompt_count - 1) - start
        count = slots // block_size * block_size - beginning
        if count > 0:
            parts.append(CanonicalPart(start, start + count, beginning))
    return tuple(parts)


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
