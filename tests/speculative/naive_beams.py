"""Beam search the plain way: every sequence, every token of the vocabulary, fixed-size tables.

Follows `GenerationMixin._beam_search` of Transformers 5 line by line for a batch of one: unfilled
places score -1e9, as there.
"""

from collections.abc import Callable, Sequence

from speculative.beams import BeamRules

NOTHING = -1e9

Law = Callable[[Sequence[int]], Sequence[float]]
"""Log-probabilities of every token after a text."""

Text = tuple[int, ...]


def naive_beam_search(law: Law, rules: BeamRules) -> list[tuple[Text, float]]:
    """Return the finished (tokens, score), best first."""
    width = rules.width
    running: list[tuple[float, Text]] = [(0.0, ())]
    finished: list[tuple[float, Text, bool]] = [(NOTHING, (), False)] * width
    for length in range(1, rules.tokens_max + 1):
        candidates = [
            (score + logprob, (*text, token))
            for score, text in running
            for token, logprob in enumerate(law(text))
        ]
        candidates = top(candidates, rules.offers)
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
        news = [
            (score / length**rules.length_penalty, text, True)
            if end and place < width
            else (NOTHING, text, False)
            for place, ((score, text), end) in enumerate(zip(candidates, ends, strict=True))
        ]
        finished = sorted([*finished, *news], key=lambda row: -row[0])[:width]
        full = all(is_finished for _, _, is_finished in finished)
        worst = finished[-1][0] if full else NOTHING
        improvable = running[0][0] / length**rules.length_penalty > worst
        if not improvable or (full and rules.early_stopping) or all(ends):
            break
    return [(text, score) for score, text, is_finished in finished if is_finished]


def top(rows: list[tuple[float, Text]], count: int) -> list[tuple[float, Text]]:
    """Return the best rows; equal scores keep their order."""
    return sorted(rows, key=lambda row: -row[0])[:count]
