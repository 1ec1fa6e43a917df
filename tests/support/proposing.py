"""Proposers with drafts that are there already, of a draft model or of an oracle."""

from collections.abc import Callable

from draftwerk.speculative.drafting.head_levels import ALL_LEVELS
from draftwerk.speculative.drafting.policy import DraftPolicy
from draftwerk.speculative.drafting.prepared import Prepared
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.drafting.rationing import Candidates, ChosenRows
from draftwerk.speculative.options.beams.search_drafts import SearchDrafts
from draftwerk.speculative.rounds import Draft, Round, Row, chain
from draftwerk.speculative.sources.registry import WITHOUT_MODEL


def drafts_of(
    proposer: Proposer, round_: Round, model_drafts: tuple[Draft, ...], model_ms: float = 0.0
) -> tuple[Draft, ...]:
    """Return a draft for every row; `model_drafts` are the draft model's, one per row."""
    return proposer.finish(proposer.prepare(round_), model_drafts, model_ms)


class EveryRow(DraftPolicy):
    """Asks every row's sources in every round, and for its top-k, whatever it costs."""

    def choices(self, texts: Candidates, row_count: int, step_ms: float) -> ChosenRows:
        return ChosenRows({*texts.sources}, dict.fromkeys(texts.heads, ALL_LEVELS))


class Reckless(Proposer):
    """Verifies every guess of an oracle, those for beams too, whatever it costs."""

    def __init__(
        self, guess: Callable[[Round], tuple[Draft, ...]], policy: type[DraftPolicy] = DraftPolicy
    ) -> None:
        super().__init__(WITHOUT_MODEL, policy=policy, groups=SearchDrafts)
        self._oracle = guess

    def finish(
        self, prepared: Prepared, model_drafts: tuple[Draft, ...], model_ms: float = 0.0
    ) -> tuple[Draft, ...]:
        """Return what was guessed where anything was."""
        own = super().finish(prepared, model_drafts, model_ms)
        return tuple(
            theirs if theirs.tokens else ours
            for ours, theirs in zip(own, self._oracle(prepared.round), strict=True)
        )


class Recalling(Reckless):
    """Guesses what followed the same tokens in any text before, whatever it costs."""

    CONTEXT, LENGTH = 3, 4

    def __init__(self) -> None:
        super().__init__(lambda round_: tuple(map(self._draft, round_.rows)))
        self._texts: dict[int, tuple[int, ...]] = {}
        self._followers: dict[tuple[int, ...], int] = {}

    def _draft(self, row: Row) -> Draft:
        begun = (
            row.new_sequence.tokens if row.new_sequence else self._texts.get(row.sequence_id, ())
        )
        text = self._texts[row.sequence_id] = begun + row.new_token_ids
        for end in range(self.CONTEXT, len(text)):
            self._followers[text[end - self.CONTEXT : end]] = text[end]
        guessed = list(text[-self.CONTEXT :])
        while (
            row.samples and row.options.branch is None and len(guessed) < self.CONTEXT + self.LENGTH
        ):
            follower = self._followers.get(tuple(guessed[-self.CONTEXT :]))
            if follower is None:
                break
            guessed.append(follower)
        tokens = tuple(guessed[self.CONTEXT :][: row.draft_max])
        return chain(tokens, "recycle")
