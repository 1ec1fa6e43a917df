"""A request's declaration of segments to reuse; `options/blend` has the rules themselves."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

RuleName = Literal["hkvd", "head", "none"]
RULES: tuple[RuleName, ...] = ("hkvd", "head", "none")
RULE: RuleName = "hkvd"
RATIO = 0.15
"""The blend that `blend: true` stands for: a rule, and the share of the canonical tokens that it
computes again."""


class Blend(msgspec.Struct, frozen=True, array_like=True):
    """A request's declaration: its segments, and by which rule they are reused."""

    spans: tuple[tuple[int, int], ...]
    """(start, stop) of each segment in the prompt's tokens, ascending."""
    rule: RuleName = RULE
    ratio: Annotated[float, Meta(ge=0, le=1)] = RATIO
    """Share of the canonical tokens that is computed again."""

    @property
    def recomputes(self) -> bool:
        """Whether the rule computes any canonical token again."""
        return self.rule in ("hkvd", "head") and self.ratio > 0

    @property
    def probes(self) -> bool:
        """Whether the choice depends on the lowest layers of all tokens."""
        return self.rule == "hkvd" and self.recomputes
