"""The proposer: keeps each sequence's draft sources and fills rounds with their guesses."""

from dataclasses import dataclass, field

from speculative.lengths import AdaptiveLength
from speculative.ngram import NgramText
from speculative.rounds import NO_DRAFT, Draft, Round, Row


@dataclass(slots=True)
class _Drafted:
    """What the proposer remembers of one sequence."""

    ngram: NgramText
    methods: tuple[str, ...] | None
    length: AdaptiveLength = field(default_factory=AdaptiveLength)
    last: Draft = NO_DRAFT


class Proposer:
    """Turns rounds into drafts; learns from the tokens that each round says were committed."""

    def __init__(self, methods: tuple[str, ...]) -> None:
        self._methods = methods
        self._sequences: dict[int, _Drafted] = {}

    def propose(self, round_: Round, model_drafts: tuple[Draft, ...]) -> tuple[Draft, ...]:
        """Return a draft for every row, NO_DRAFT where there is nothing to guess or no room.

        `model_drafts` are the draft model's, one per row; they are used where it has any.
        """
        for sequence_id in round_.closed:
            self._sequences.pop(sequence_id, None)
        return tuple(map(self._draft, round_.rows, model_drafts))

    def _draft(self, row: Row, model_draft: Draft) -> Draft:
        if row.opening is not None:
            self._sequences[row.sequence_id] = _Drafted(
                NgramText(row.opening.tokens), row.opening.methods
            )
        state = self._sequences[row.sequence_id]
        self._learn(state, row.news)
        allowed = "ngram" in self._methods and (state.methods is None or "ngram" in state.methods)
        room = min(row.draft_max, state.length.length)
        ngram = state.ngram.propose(room) if allowed and room > 0 else NO_DRAFT
        state.last = ngram if ngram.tokens or not model_draft.tokens else model_draft
        return state.last

    def _learn(self, state: _Drafted, news: tuple[int, ...]) -> None:
        if news:
            state.ngram.extend(news)
            state.length.learn(len(state.last.tokens), len(news) - 1)
