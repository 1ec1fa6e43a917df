"""Limits of rounds: chosen for this model on this machine, unless the settings say them."""

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from msgspec.structs import replace

from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.options.service.prompt_shares import CREDIT_ROUNDS
from draftwerk.speculative.options.service.round_sizes import (
    NEAR_LEAST,
    ROWS_ALWAYS,
    TEXT_TOKENS,
    knee_tokens,
    rows_of,
    tokens_of,
)
from draftwerk.speculative.protocol.frames import Ready
from draftwerk.speculative.scheduler import RoundLimits


class MeasuredModel(NamedTuple):
    """The measurements of a model, and the limits of its rounds that follow."""

    ready: Ready
    limits: RoundLimits
    cache_tokens: int
    snapshot_interval: int = 0
    """Tokens of a prompt between snapshots of recurrent states."""
    drafting: str = ""
    """The memory that drafting takes, for people."""


PAUSE_S = 0.06
"""The time that prompts may let texts wait, where low latency is preferred."""


def round_limits(
    settings: EngineSettings, planned: RoundLimits, ready: Ready, cache_tokens: int
) -> RoundLimits:
    """Return the limits of a measured model over a cache of so many tokens."""
    in_order = settings.prefer == "throughput"
    found = replace(planned, pause_s=inf if in_order else PAUSE_S, in_order=in_order)
    if not ready.step_costs:
        rows_max = settings.rows_max or found.rows_max
        return replace(
            found,
            rows_max=min(rows_max, settings.round_tokens or rows_max),
            tokens_max=settings.round_tokens or max(found.tokens_max, 2 * rows_max),
        )
    cost = StepCost(ready.step_costs, ready.roofline)
    rows_max = settings.rows_max or rows_of(cost, cache_tokens)
    if settings.round_tokens:
        rows_max = min(rows_max, settings.round_tokens)
        return replace(found, rows_max=rows_max, tokens_max=settings.round_tokens)
    tokens_max = tokens_of(cost, rows_max)
    return replace(found, rows_max=rows_max, tokens_max=tokens_max, tokens_revised=True)


def reasons(measured: MeasuredModel) -> Iterator[tuple[str, str]]:
    """Return what was chosen, and why."""
    ready, limits, cache_tokens, _, drafting = measured
    if drafting:
        yield "memory for drafts", drafting
    room = f"the cache holds {cache_tokens}, and a text has {TEXT_TOKENS} of them at least"
    if limits.rows_max == ROWS_ALWAYS < cache_tokens // TEXT_TOKENS:
        room = "more of them would bring hardly more tokens a second"
    yield "texts at once", f"{limits.rows_max}: {room}"
    words = f"{limits.tokens_max}"
    if ready.step_costs:
        knee = knee_tokens(StepCost(ready.step_costs, ready.roofline))
        words += (
            f": a token costs least, within {NEAR_LEAST - 1:.0%}, in rounds of {knee}; there is "
            "room for two in every row"
        )
    yield "tokens in a round", words
    if limits.pause_s < inf:
        words = f"{1e3 * limits.pause_s:.0f} ms, or two steps without prompts if these are longer"
        yield "pause of a text while prompts are read", words
    if not limits.in_order:
        tokens = (CREDIT_ROUNDS + 1) * limits.tokens_max
        words = "the least left to read goes first; each is read when four times the tokens "
        yield (
            "order of prompts",
            f"{words}before it in the queue, and its own, and {tokens} were read",
        )
