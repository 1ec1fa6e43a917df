"""A draft model beside the target: it is told of every round, and asked where it pays."""

from dataclasses import dataclass, field

from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.drafting.drafted_rounds import DraftingStep
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.rounds import (
    NO_DRAFT,
    Decision,
    Draft,
    NewSequence,
    Proposal,
    Round,
    Verdict,
    chain,
)
from draftwerk.speculative.row_parts.step_report import StepReport
from draftwerk.speculative.sampling import Sampling
from tests.support.rounds import make_round, make_row

PROMPT = (1, 2, 3)


@dataclass
class Counting:
    """A text in which each token is the one before plus one, and a draft model of it."""

    right: bool
    known: list[int] = field(default_factory=lambda: [*PROMPT])
    """Tokens that the draft model was told."""
    ms: float = 0.0
    """What the clock shows."""
    asked: list[int] = field(default_factory=list[int])

    def guess(self, round_: Round) -> tuple[Draft, ...]:
        (row,) = round_.rows
        self.known += row.new_token_ids
        assert len(self.known) == row.stop, "it is told of every token"
        self.asked.append(row.draft_max)
        if not row.draft_max:
            return (NO_DRAFT,)
        self.ms += 1.0 + row.draft_max
        first = row.stop + 1 if self.right else 0
        return (chain(tuple(range(first, first + row.draft_max)), "draft"),)

    def verify(self, proposal: Proposal) -> Verdict:
        (row,), (draft,) = proposal.round.rows, proposal.drafts
        load = StepLoad(1 + len(draft.tokens), 1 + len(draft.tokens))
        device_ms = 10.0 + 0.1 * load.tokens
        self.ms += device_ms
        count = 1 + (len(draft.tokens) if self.right else 0)
        decision = Decision(tokens=tuple(range(row.stop + 1, row.stop + 1 + count)))
        return Verdict(0, 0, (decision,), StepReport(load=load, device_ms=device_ms))


def served(text: Counting, rounds: int) -> int:
    """Return how many tokens come of so many rounds, planned ahead."""
    proposer = Proposer((), [(n, 10.0 + 0.1 * n) for n in (1, 2, 4, 8, 16)])
    drafted = DraftingStep(proposer, text.verify, text.guess, lambda: text.ms / 1e3)
    opening = NewSequence(PROMPT, 3, Sampling(temperature=0.0))
    room = {"draft_max": 8, "tokens_left": 10**6}
    row = make_row(2, 3, new_sequence=opening, **room)
    count = 0
    for number in range(rounds):
        verdict = drafted.step(Proposal(make_round(row, round_id=number), ()))
        count += len(verdict.decisions[0].tokens)
        row = make_row(0, 0, continues=True, **room)
    return count


def test_a_model_that_is_right_is_asked_in_every_round_of_those_planned_ahead() -> None:
    text = Counting(right=True)
    assert served(text, 40) > 40 * 6
    assert text.asked[0] == 2 and min(text.asked[1:]) >= 4


def test_a_model_that_is_wrong_is_told_of_every_round_and_seldom_asked() -> None:
    text = Counting(right=False)
    assert served(text, 2000) == 2000
    asked = [each for each in text.asked if each]
    assert len(asked) > 8
    assert sum(1.0 + each for each in asked[-5:]) < 15.1, "only probes are left"
    # Half a hundredth of the time, but for what it takes to find out.
    assert text.ms < 1.005 * 10.1 * 2000 + 150.0
