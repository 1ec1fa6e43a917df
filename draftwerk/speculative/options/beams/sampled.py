"""Beams at a temperature: texts drawn without replacement, the best of all under one noise.

Stochastic beam search (Kool, van Hoof and Welling, "Stochastic Beams and Where to Find Them", ICML
2019). Every whole text has its log-probability plus Gumbel noise, and the `width` largest of these
perturbed scores are a sample without replacement, in the order of drawing. A beginning's perturbed
score is the largest of those that begin with it, so a beam of `width` finds them: each child's is
drawn under the condition that the largest is its parent's.
"""

from array import array
from collections.abc import Sequence
from math import exp, inf, log, log1p
from zlib import crc32

from draftwerk.speculative.options.beams.decisions import BeamRules, Beams, Candidate, Hypothesis
from draftwerk.speculative.sampling import gumbel


def path_key(tokens: Sequence[int]) -> int:
    """Return the `branch` under which a beam search draws what follows these generated tokens.

    Texts of one length draw apart unless their sums agree, one pair in 2**32.
    """
    return crc32(array("i", tokens))


class SampledBeams(Beams):
    """A search whose hypotheses compete by their perturbed scores; ended ones stay in the beam."""

    def step(self, candidates: Sequence[tuple[Candidate, ...]]) -> list[int]:
        """Extend the live texts by one token; return which one each now continues."""
        length = self.length + 1
        grown = self._grown(candidates)
        kept = [*((each.perturbed, -1, each) for each in self.finished), *grown]
        kept = sorted(kept, key=lambda one: -one[0])[: self.rules.width]
        stops = self.rules.stop_token_ids

        def ended(parent: int, each: Hypothesis) -> bool:
            return parent < 0 or each.tokens[-1] in stops or length >= self.rules.tokens_max

        self.finished = [each for _, parent, each in kept if ended(parent, each)]
        going_on = [(parent, each) for _, parent, each in kept if not ended(parent, each)]
        self.live = [each for _, each in going_on]
        self.done = not self.live
        return [parent for parent, _ in going_on]

    def is_certain(self, candidates: Sequence[tuple[Candidate, ...] | None]) -> bool:
        """Return whether a whole beam beats every text after which nothing is known."""
        unknown = [
            each.perturbed
            for each, chosen_from in zip(self.live, candidates, strict=True)
            if chosen_from is None
        ]
        grown = [
            score for score, _, _ in self._grown([chosen_from or () for chosen_from in candidates])
        ]
        ranked = sorted([*grown, *(each.perturbed for each in self.finished)], reverse=True)
        width = self.rules.width
        return not unknown or (len(ranked) >= width and ranked[width - 1] > max(unknown))

    def standings(self, texts: list[Hypothesis]) -> list[float]:
        return [each.perturbed for each in texts]

    def _ended_score(self, score: float, length: int) -> float:
        return score

    def _grown(
        self, candidates: Sequence[tuple[Candidate, ...]]
    ) -> list[tuple[float, int, Hypothesis]]:
        """Return (perturbed score, parent, text) of every candidate's text."""
        found: list[tuple[float, int, Hypothesis]] = []
        for number, (parent, chosen_from) in enumerate(zip(self.live, candidates, strict=True)):
            scores = perturbed(self.rules, parent, chosen_from)
            for (token, logprob), score in zip(chosen_from, scores, strict=True):
                tokens = (*parent.tokens, token)
                child = Hypothesis(tokens, parent.score + logprob, parent, chosen_from, score)
                found.append((score, number, child))
        return found


def perturbed(
    rules: BeamRules, parent: Hypothesis, chosen_from: Sequence[Candidate]
) -> list[float]:
    """Return each child's perturbed score; the largest is the parent's.

    The one with the largest noise must be among the candidates.
    """
    if not chosen_from:
        return []
    assert rules.seed is not None
    key, position = path_key(parent.tokens), rules.prompt_count + len(parent.tokens)
    free = [
        parent.score + logprob + gumbel(rules.seed, key, position, token)
        for token, logprob in chosen_from
    ]
    return [_conditioned(score, max(free), parent.perturbed) for score in free]


def new_beams(rules: BeamRules) -> Beams:
    """Return the beginning of a search."""
    return Beams(rules) if rules.seed is None else SampledBeams(rules)


def _conditioned(score: float, largest: float, bound: float) -> float:
    """Move a perturbed score as if the largest of its siblings' had come out at `bound`.

    -log(exp(-bound) - exp(-largest) + exp(-score)), without cancellation (their appendix B.3).
    """
    gap = score - largest
    if gap == 0.0:
        return bound
    shift = bound - score + _log1mexp(gap)
    return bound - max(0.0, shift) - log1p(exp(-abs(shift)))


def _log1mexp(value: float) -> float:
    """Return log(1 - exp(value)) of a negative number."""
    return log1p(-exp(value)) if value < -1e-12 else (log(-value) if value else -inf)
