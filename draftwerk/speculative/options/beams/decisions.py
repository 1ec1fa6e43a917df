"""Beam search as decisions over plain data: exactly `transformers.generate(num_beams=width)`.

    live hypotheses --next tokens--> ranked candidates --> live (the best that go on)
                                                  └-> finished (ended among the first `width`)

It is the search of Transformers 5 (`_beam_search`), quirks included: only a candidate among the
first `width` may finish; scores are divided by length ** length_penalty when it does, the end token
counted; with `early_stopping` off, the search is over when the best live hypothesis, scored at its
present length, does not beat the worst of `width` finished ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import msgspec

Candidate = tuple[int, float]
"""A next token and its log-probability, after penalties and bias."""


class BeamRules(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a beam search."""

    width: int
    tokens_max: int
    """Generated tokens of a hypothesis at most."""
    stop_token_ids: tuple[int, ...] = ()
    length_penalty: float = 1.0
    """Above 0 favours long texts, below 0 short ones."""
    early_stopping: bool = False
    """Whether `width` finished hypotheses are enough."""
    seed: int | None = None
    """The seed of the noise under which texts are drawn; None searches for the likeliest."""
    prompt_count: int = 0
    """Tokens before the generated ones: noise goes by position."""

    @property
    def candidates(self) -> int:
        """How many of the best next tokens of a hypothesis can affect the search.

        Even if each stop token of each hypothesis ranks first, `width` others remain.
        """
        if self.seed is not None:
            return self.width
        return max(2, 1 + len(self.stop_token_ids)) * self.width


@dataclass(frozen=True, slots=True, eq=False)
class Hypothesis:
    """A text that may still become the best."""

    tokens: tuple[int, ...] = ()
    """Generated ones."""
    score: float = 0.0
    """Sum of the tokens' log-probabilities; divided by the length penalty once finished."""
    parent: "Hypothesis | None" = None
    chosen_from: tuple[Candidate, ...] = ()
    """The candidates that the last token was chosen from."""
    perturbed: float = 0.0
    """Where texts are drawn, what they compete by."""

    def trail(self, start: int) -> list[tuple[Candidate, ...]]:
        """Return what each token from `start` on was chosen from."""
        found: list[tuple[Candidate, ...]] = []
        at = self
        while at.parent is not None and len(at.tokens) > start:
            found.append(at.chosen_from)
            at = at.parent
        return found[::-1]


@dataclass(slots=True)
class Beams:
    """The state of one search; every live hypothesis has the same length."""

    rules: BeamRules
    live: list[Hypothesis] = field(default_factory=lambda: [Hypothesis()])
    """Best first."""
    finished: list[Hypothesis] = field(default_factory=list[Hypothesis])
    """Best first, `width` at most."""
    done: bool = False

    @property
    def length(self) -> int:
        return len(self.live[0].tokens)

    def is_certain(self, candidates: Sequence[tuple[Candidate, ...] | None]) -> bool:
        """Return whether the candidates that are known decide the next step.

        They do if a whole beam of them beats every hypothesis of which they are not known: a text
        never becomes likelier by growing.
        """
        unknown = [
            each.score
            for each, chosen_from in zip(self.live, candidates, strict=True)
            if chosen_from is None
        ]
        if not unknown:
            return True
        stops = self.rules.stop_token_ids
        ranked = self._ranked([chosen_from or () for chosen_from in candidates])
        going_on = [score for score, _, token in ranked if token not in stops]
        width = self.rules.width
        return len(going_on) >= width and going_on[width - 1] > max(unknown)

    @property
    def length_max(self) -> int:
        """How long the longest hypothesis is, alive or not."""
        return max(len(each.tokens) for each in [*self.live, *self.finished])

    def step(self, candidates: Sequence[tuple[Candidate, ...]]) -> list[int]:
        """Extend the search by one token; return which hypothesis each live one now continues.

        `candidates` has, for each live hypothesis, at least its `rules.candidates` best next tokens
        (fewer if no others are possible); of those that `is_certain` did not need, none. Equal
        scores go by hypothesis, then by token.
        """
        rules, length = self.rules, self.length + 1
        live: list[Hypothesis] = []
        ended: list[Hypothesis] = []
        parents: list[int] = []
        for rank, (score, parent, token) in enumerate(self._ranked(candidates)):
            source = self.live[parent]
            tokens, chosen_from = (*source.tokens, token), candidates[parent]
            if token in rules.stop_token_ids or length >= rules.tokens_max:
                if rank < rules.width:
                    score = self._ended_score(score, length)
                    ended.append(Hypothesis(tokens, score, source, chosen_from))
            elif len(live) < rules.width:
                live.append(Hypothesis(tokens, score, source, chosen_from))
                parents.append(parent)
        self.finished.extend(ended)
        self.finished.sort(key=lambda hypothesis: -hypothesis.score)
        del self.finished[rules.width :]
        self.live = live
        self.done = not live or self._is_final(length)
        return parents

    def final_prefix(self) -> tuple[int, ...]:
        """Return the tokens with which the best text must begin, whatever comes; only grows."""
        if self.done:
            return self.finished[0].tokens if self.finished else ()
        return common_prefix([each.tokens for each in (*self.live, *self.finished[:1])])

    def scores(self, text: Hypothesis, start: int) -> list[float]:
        """Return what a text's score is if it ends with each of its tokens from `start` on."""
        found = [text.score] if len(text.tokens) > start and text in self.finished else []
        text = text.parent if found and text.parent is not None else text
        while text.parent is not None and len(text.tokens) > start:
            found.append(self._ended_score(text.score, len(text.tokens)))
            text = text.parent
        return found[::-1]

    def standings(self, texts: list[Hypothesis]) -> list[float]:
        """Return what texts compete by: the larger the better."""
        return [each.score for each in texts]

    def check(self) -> None:
        """Assert that nothing is there twice, too long or out of order."""
        rules = self.rules
        assert len(self.live) <= rules.width and len(self.finished) <= rules.width
        assert len({each.tokens for each in (*self.live, *self.finished)}) == len(self.live) + len(
            self.finished
        ), "a text is in the search twice"
        assert len({len(each.tokens) for each in self.live}) <= 1, "live lengths differ"
        for group in (self.live, self.finished):
            scores = self.standings(group)
            assert scores == sorted(scores, reverse=True), "not best first"
        assert self.done or self.live, "nothing can go on"

    def _ranked(self, candidates: Sequence[Sequence[Candidate]]) -> list[tuple[float, int, int]]:
        """Return (score, hypothesis, token) of the candidates that count, best first."""
        extensions = [
            (-hypothesis.score - logprob, parent, token)
            for parent, (hypothesis, chosen_from) in enumerate(
                zip(self.live, candidates, strict=True)
            )
            for token, logprob in chosen_from
            if logprob > -inf
        ]
        extensions.sort()
        return [
            (-loss, parent, token) for loss, parent, token in extensions[: self.rules.candidates]
        ]

    def _ended_score(self, score: float, length: int) -> float:
        return score / length**self.rules.length_penalty

    def _is_final(self, length: int) -> bool:
        """Return whether the finished hypotheses stand."""
        if len(self.finished) < self.rules.width:
            return False
        best_possible = self._ended_score(self.live[0].score, length)
        return self.rules.early_stopping or best_possible <= self.finished[-1].score


def common_prefix(texts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the longest beginning that all texts share."""
    first, last = min(texts), max(texts)  # whatever these two share, those between share too
    length = next((n for n, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), None)
    return first[:length] if length is not None else first[: min(len(first), len(last))]
