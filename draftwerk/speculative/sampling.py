"""The sampling rule: which token the seeded target chooses, as a pure function of its logits.

    token(P) = argmax over v of [ processed(v) + gumbel(seed, branch, P, v) ]

This is the plain reference, in Python floats; the model's tensor twin must agree with it. The noise
comes from a counter, so that the same (seed, branch, position, token) gives the same number: Philox
4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011) with
key = seed and counter = (token // 4, position, branch, 0); word `token % 4` is the token's.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from draftwerk.speculative.parameters.bounds import (
    BIAS_MAX,
    GRAMMAR_TEXT_MAX,
    TOKEN_ID_MAX,
    BiasValue,
    LogprobCount,
    LogprobTokens,
    Penalty,
    Probability,
    RepetitionPenalty,
    Temperature,
    TokenId,
    TokenIds,
    TokenTotal,
    added,
)
from draftwerk.speculative.parameters.elementary import exp, log

MASK = 0xFFFF_FFFF
MULTIPLIERS = (0xD251_1F53, 0xCD9E_8D57)
WEYL = (0x9E37_79B9, 0xBB67_AE85)
ROUNDS = 10
WINDOW_NATS = 30.0
"""Tokens this far below the best, under 1e-8 of the mass, are outside: this bounds the work."""


class Grammar(msgspec.Struct, frozen=True):
    """A formal language; every text generated under it that is not cut short belongs to it."""

    kind: Literal["json_schema", "regex", "lark", "reply"]
    text: Annotated[str, Meta(max_length=GRAMMAR_TEXT_MAX)]
    """The schema as JSON, the regular expression, or the grammar (a Lark one may be GBNF); of a
    reply, two grammars as JSON: `reply`, and the one of its `text`."""


class Sampling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The distribution a request asked for, and the key of its noise."""

    temperature: Temperature = 1.0
    """0 means the most likely token, no noise."""
    top_k: Annotated[int, Meta(ge=0, le=TOKEN_ID_MAX)] = 0
    """0 means all."""
    top_p: Probability = 1.0
    min_p: Probability = 0.0
    repetition_penalty: RepetitionPenalty = 1.0
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    logit_bias: Annotated[tuple[tuple[TokenId, BiasValue], ...], Meta(max_length=BIAS_MAX)] = ()
    tokens_min: TokenTotal = 0
    """No stop token before this many generated tokens."""
    stop_token_ids: TokenIds = ()
    """End the text: the model's own, unless the request ignores them, and those that it names."""
    grammar: Grammar | None = None
    """Other tokens are outside the distribution; a stop token may come where it accepts."""
    seed: Annotated[int, Meta(ge=0)] = 0
    branch: Annotated[int, Meta(ge=0)] = 0
    logprobs: LogprobCount = -1
    """Alternatives to report beside the chosen token's log-probability; -1 reports nothing."""
    logprob_token_ids: LogprobTokens = ()
    """Tokens to report in place of alternatives, likely or not."""

    @property
    def edits_logits(self) -> bool:
        """Whether penalties, bias or `tokens_min` change logits."""
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
            or bool(self.logit_bias)
            or self.tokens_min > 0
        )


def edited(
    logits: Sequence[float],
    prompt: Collection[int],
    output: Collection[int],
    sampling: Sampling,
    allowed: Collection[int] | None = None,
) -> list[float]:
    """Apply penalties, bias, `tokens_min` and grammar, whose tokens are `allowed`, None without.

    Repetition looks at prompt and output, presence and frequency at the output alone (as vLLM and
    OpenAI document them).
    """
    scores = list(logits)
    counts = Counter(output)
    for token in counts.keys() | set(prompt):  # any order: each changes its own score
        rate = sampling.repetition_penalty
        # On both sides of zero towards the unlikely, as Transformers has it.
        scores[token] = scores[token] / rate if scores[token] > 0 else scores[token] * rate
    for token, count in counts.items():
        scores[token] -= sampling.frequency_penalty * count + sampling.presence_penalty
    for token, bias in sampling.logit_bias:
        scores[token] += added(bias)
    if len(output) < sampling.tokens_min:
        for token in sampling.stop_token_ids:
            scores[token] = float("-inf")
    if allowed is not None:
        scores = [
            score if token in allowed else float("-inf") for token, score in enumerate(scores)
        ]
    return scores


def truncated(scores: Sequence[float], sampling: Sampling) -> list[tuple[int, float]]:
    """Apply temperature, the window, top-k, top-p and min-p; returns (token, score) best first, and
    equal ones by token id. Scores are log-probabilities but for a constant."""
    scaled = [score / sampling.temperature for score in scores]
    best = max(scaled)
    floor = best - WINDOW_NATS
    ranked = sorted(
        ((token, score) for token, score in enumerate(scaled) if score >= floor),
        key=lambda pair: (-pair[1], pair[0]),
    )
    if sampling.top_k:
        ranked = ranked[: sampling.top_k]
    if sampling.top_p < 1.0:
        ranked = ranked[: _nucleus_size([score for _, score in ranked], sampling.top_p)]
    if sampling.min_p > 0.0:
        floor = best + log(sampling.min_p)
        ranked = [(token, score) for token, score in ranked if score >= floor]
    return ranked


def choose(scores: Sequence[float], position: int, sampling: Sampling) -> int:
    """Return the token at `position` given edited scores: the seeded target's one answer."""
    if sampling.temperature == 0.0:
        # Of equal scores the lowest token, as in every twin: a tie must not depend on the device.
        return max(range(len(scores)), key=lambda token: (scores[token], -token))
    return max(
        truncated(scores, sampling),
        key=lambda pair: (
            pair[1] + gumbel(sampling.seed, sampling.branch, position, pair[0]),
            -pair[0],
        ),
    )[0]


def _nucleus_size(ranked: Sequence[float], top_p: float) -> int:
    """Return how many of the best-first scores make up `top_p` of the mass; at least one."""
    # Relative to the best: nothing overflows, and the unknown constant falls out.
    weights = [exp(score - ranked[0]) for score in ranked]
    goal = top_p * sum(weights)
    mass = 0.0
    for count, weight in enumerate(weights, start=1):
        mass += weight
        if mass >= goal:
            return count
    # Summed one by one, rounding may leave the mass just below the goal.
    return len(weights)


# --- noise ----------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)  # four tokens share a counter
def philox(counter: tuple[int, int, int, int], seed: int) -> tuple[int, int, int, int]:
    """Return the four 32-bit words of one counter under a 64-bit key."""
    c0, c1, c2, c3 = counter
    k0, k1 = seed & MASK, seed >> 32 & MASK
    for _ in range(ROUNDS):
        product0, product1 = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            product1 >> 32 ^ c1 ^ k0,
            product1 & MASK,
            product0 >> 32 ^ c3 ^ k1,
            product0 & MASK,
        )
        k0, k1 = k0 + WEYL[0] & MASK, k1 + WEYL[1] & MASK
    return c0, c1, c2, c3


def uniform(seed: int, branch: int, position: int, token: int) -> float:
    """Return a number strictly inside (0, 1), one of 2**32 evenly spaced ones."""
    word = philox((token // 4, position, branch, 0), seed)[token % 4]
    # Half a step from both ends: neither logarithm may be infinite.
    return (word + 0.5) * 2.0**-32


def gumbel(seed: int, branch: int, position: int, token: int) -> float:
    """Return the noise that is added to the token's log-probability before the argmax."""
    # `log` is not the C library's, whose last bit differs between machines.
    return -log(-log(uniform(seed, branch, position, token)))
