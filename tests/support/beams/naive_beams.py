"""Beam search the plain way: every sequence, every token of the vocabulary, fixed-size tables.

Follows `GenerationMixin._beam_search` of Transformers 5 line by line for a batch of one: unfilled
places score -1e9, as there.
"""

from collections.abc import Callable, Sequence
from math import exp, inf, log

from draftwerk.speculative.options.beams.decisions import BeamRules, Candidate
from draftwerk.speculative.options.beams.sampled import path_key
from draftwerk.speculative.sampling import gumbel

NOTHING = -1e9

Distribution = Callable[[Sequence[int]], Sequence[float]]
"""Log-probabilities of every token after a text."""

Text = tuple[int, ...]


def naive_beam_search(distribution: Distribution, rules: BeamRules) -> list[tuple[Text, float]]:
    """Return the finished (tokens, score), best first."""
    width = rules.width
    running: list[tuple[float, Text]] = [(0.0, ())]
    finished: list[tuple[float, Text, bool]] = [(NOTHING, (), False)] * width
    for length in range(1, rules.tokens_max + 1):
        candidates = [
            (score + logprob, (*text, token))
            for score, text in running
            for token, logprob in enumerate(distribution(text))
        ]
        candidates = top(candidates, rules.candidates)
        ends = [
            text[-1] in rules.stop_token_ids or length == rules.tokens_max for _, text in candidates
        ]
        running = top(
            [
                (score + (NOTHING if end else 0.0), text)
                for (score, text), end in zip(candidates, ends, strict=True)
            ],
            width,
        )
        new_token_ids = [
            (score / length**rules.length_penalty, text, True)
            if end and rank < width
            else (NOTHING, text, False)
            for rank, ((score, text), end) in enumerate(zip(candidates, ends, strict=True))
        ]
        finished = sorted([*finished, *new_token_ids], key=lambda row: -row[0])[:width]
        full = all(is_finished for _, _, is_finished in finished)
        worst = finished[-1][0] if full else NOTHING
        improvable = running[0][0] / length**rules.length_penalty > worst
        if not improvable or (full and rules.early_stopping) or all(ends):
            break
    return [(text, score) for score, text, is_finished in finished if is_finished]


def top(rows: list[tuple[float, Text]], count: int) -> list[tuple[float, Text]]:
    """Return the best rows; equal scores keep their order."""
    return sorted(rows, key=lambda row: -row[0])[:count]


def naive_sampled_search(distribution: Distribution, rules: BeamRules) -> list[tuple[Text, float]]:
    """Return the (tokens, log-probability) with the most noise, of all whole texts, best first.

    No beam at all: every text of the language is grown, with the textbook's formula.
    """
    assert rules.seed is not None
    grown: list[tuple[float, float, Text]] = [(0.0, 0.0, ())]
    whole: list[tuple[float, float, Text]] = []
    while grown:
        bound, score, text = grown.pop()
        if len(text) == rules.tokens_max or (text and text[-1] in rules.stop_token_ids):
            whole.append((bound, score, text))
            continue
        key, position = path_key(text), rules.prompt_count + len(text)
        logprobs = [
            (token, score + each) for token, each in enumerate(distribution(text)) if each > -inf
        ]
        free = [each + gumbel(rules.seed, key, position, token) for token, each in logprobs]
        for (token, total), noisy in zip(logprobs, free, strict=True):
            moved = -log(exp(-bound) - exp(-max(free)) + exp(-noisy))
            grown.append((moved, total, (*text, token)))
    whole.sort(reverse=True)
    return [(text, score) for _, score, text in whole[: rules.width]]


def best_candidates(logprobs: Sequence[float], count: int) -> tuple[Candidate, ...]:
    """Return the `count` best next tokens of a whole vocabulary, best first, equals by token."""
    order = sorted(range(len(logprobs)), key=lambda token: (-logprobs[token], token))
    return tuple((token, logprobs[token]) for token in order[:count])
