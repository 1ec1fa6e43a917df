"""Outputs of options beside a text's tokens; who plans and commits hands them on unopened."""

from typing import NamedTuple

import msgspec

from draftwerk.speculative.requests.pooling import PoolingOutput
from draftwerk.speculative.rounds import ChosenLogprob


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
