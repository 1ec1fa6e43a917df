"""Candidates seen in a beam search, by context, and predictions made from them.

The branches of a beam are nearly equal, a few tokens apart, so the candidates computed after a few
tokens are the best prediction of those after the same few tokens elsewhere in the search. Mixed
with them are what followed those tokens in the prompt, and the draft head's candidates.
"""

from collections.abc import Iterable, Sequence
from math import exp, log

from draftwerk.speculative.options.beams.decisions import Candidate
from draftwerk.speculative.row_parts.beam_rows import Seen
from draftwerk.speculative.sources.ngram_index import INDEX_MAX, Occurrences

ORDERS = 5
"""Most tokens of context."""
CLOSER = 2.0
"""Each token more that agrees makes the candidates count so many times as much."""
COPIES = (0.4, 0.8, 1.6, 6.0, 6.0)
"""The weights of what followed in the prompt, by the level of the match, beside candidates after
one token."""
HEAD_WEIGHT = 1.0
"""Weight of the draft head's candidates, beside the same."""
CANDIDATES_MAX = 8
"""Tokens in a guess."""

RankedCandidates = Sequence[Candidate]
"""Next tokens and their log-probabilities, best first."""
_Chances = tuple[tuple[int, float], ...]


class _Context:
    """The candidates after some tokens, and after the same with one token more in front."""

    __slots__ = ("before", "chosen_from")

    def __init__(self) -> None:
        self.before: dict[int, _Context] = {}
        self.chosen_from: _Chances = ()


class BeamMemory:
    """The candidates computed in one search so far, and its prompt."""

    def __init__(self, prompt: Occurrences) -> None:
        self._prompt = prompt
        self._root = _Context()

    def index(self) -> None:
        """Index more of the prompt, as far as one round's time allows."""
        self._prompt.index(INDEX_MAX)

    def learn(self, seen: Iterable[Seen]) -> None:
        """Record the candidates computed after some tokens; the newest replace older ones."""
        for tail, candidates in seen:
            chances = tuple((token, exp(logprob)) for token, logprob in candidates)
            context = self._root
            for token in reversed(tail[-ORDERS:]):
                found = context.before.get(token)
                if found is None:
                    found = context.before[token] = _Context()
                context = found
                context.chosen_from = chances

    def guess(
        self, tail: list[int], head_candidates: RankedCandidates = ()
    ) -> tuple[RankedCandidates, int]:
        """Return predicted candidates, and the length of the longest context with computed ones.

        They are a mixture of all that is known, and empty if nothing is. `tail` holds the last PAD
        tokens, and `head_candidates` the draft head's.
        """
        chances: dict[int, float] = {}
        total, orders = 0.0, 0
        for chosen_from, weight, order in self._seen_candidates(tail):
            total, orders = total + weight, order
            for token, chance in chosen_from:
                chances[token] = chances.get(token, 0.0) + weight * chance
        copied = self._copied(tail)
        if copied is not None:
            token, weight = copied
            total += weight
            chances[token] = chances.get(token, 0.0) + weight
        if head_candidates:
            total += HEAD_WEIGHT
            for token, logprob in head_candidates:
                chances[token] = chances.get(token, 0.0) + HEAD_WEIGHT * exp(logprob)
        best = sorted(((chance, token) for token, chance in chances.items()), reverse=True)
        found = [
            (token, log(chance / total)) for chance, token in best[:CANDIDATES_MAX] if chance > 0.0
        ]
        return found, orders

    def _seen_candidates(self, tail: list[int]) -> Iterable[tuple[_Chances, float, int]]:
        """Yield candidates after the last tokens, their weight, and how many tokens agree."""
        context, weight = self._root, 1.0
        last: _Chances = ()
        held = 0.0
        order = 0
        for token in reversed(tail[-ORDERS:]):
            found = context.before.get(token)
            if found is None:
                break
            context = found
            if context.chosen_from is not last:  # mostly one occasion is the newest of all lengths
                if held:
                    yield last, held, order
                last, held = context.chosen_from, 0.0
            held += weight
            weight *= CLOSER
            order += 1
        if held:
            yield last, held, order

    def _copied(self, tail: list[int]) -> tuple[int, float] | None:
        """Return the token that the prompt has where it agrees best, newest first, and a weight."""
        tokens = self._prompt.tokens
        matches = self._prompt.matches(tail, inside=False)
        best, best_level = 0, -1
        for position, level in matches:
            if level > best_level and position < len(tokens):
                best, best_level = position, level
        return (tokens[best], COPIES[best_level]) if best else None
