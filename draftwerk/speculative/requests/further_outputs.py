"""Outputs of options beside a text's tokens; who plans and commits hands them on unopened."""

from typing import NamedTuple

import msgspec

from draftwerk.speculative.requests.pooling import PoolingOutput
from draftwerk.speculative.row_parts.chosen_logprob import ChosenLogprob


class ScoredTokens(NamedTuple):
    """Prompt tokens in line, each with its log-probability and alternatives."""

    tokens: tuple[int, ...]
    logprobs: tuple[ChosenLogprob, ...]


class FurtherOutputs(msgspec.Struct, frozen=True, kw_only=True):
    """Outputs of one round for one choice, each if its request asks for it."""

    hypothesis: tuple[int, ...] = ()
    """All tokens of the best text of a beam search so far."""
    scores: tuple[float, ...] = ()
    """Per token, the score of a beam search's text that ends with it."""
    scored: ScoredTokens | None = None
    """The next tokens of the prompt, whose log-probabilities have become known."""
    margin: float | None = None
    """By how much the last token beats the one that was given in its place, in nats."""
    pooling_output: PoolingOutput | None = None
    """The result of a prompt that was only to be read."""


NOTHING_FURTHER = FurtherOutputs()
"""The outputs of a plain text."""


class FurtherCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Counts of options for one choice."""

    blended_count: int = 0
    """Prompt tokens whose KV was taken over from where their segment was read."""
    repaired_count: int = 0
    """Tokens of segments that were computed where they stand."""
    segments: tuple[tuple[int, int, int], ...] = ()
    """Each declared segment's counts: its tokens, those that were found in the cache, and those
    that were not computed where they stand."""
    score: float | None = None
    """The score of a finished beam search's text: its log-probability over the length penalty."""


NOTHING_COUNTED = FurtherCounts()
"""The counts of a plain text."""
