"""What a round takes in which nothing is drafted, and which texts a draft head is told of."""

import random
import sys
from itertools import count
from math import inf
from types import FrameType

import pytest

from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.rounds import NO_DRAFT, Draft, NewSequence, Round
from draftwerk.speculative.row_parts.feedback import Feedback, HeadNode
from draftwerk.speculative.row_parts.step_report import StepReport
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.sources.registry import WITHOUT_MODEL
from tests.support.rounds import make_round, make_row

STEP_MS = 8.0
PROMPT = 16


class Rows:
    """Rows that decode side by side, of texts in which nothing comes twice."""

    def __init__(self, proposer: Proposer, draft_max: int = 7) -> None:
        self.proposer, self.draft_max = proposer, draft_max
        self.ids, self.rounds, self.ended = count(1), count(), list[int]()
        self.known = dict[int, int]()
        self.feedback = dict[int, Feedback]()
        self.rng = random.Random(1)
        self.alphabet = 40_000

    def open(self, rows: int) -> None:
        """Add rows whose prompts are to be read."""
        self.known |= {next(self.ids): 0 for _ in range(rows)}

    def close(self, rows: int) -> None:
        """End those that began first."""
        self.ended = [*self.known][:rows]
        for each in self.ended:
            del self.known[each]

    def round(self) -> Round:
        """Return the next round, in which every row has another token."""
        rows = [
            make_row(
                max(known, PROMPT) - 1,
                max(known, PROMPT),
                sequence_id=each,
                draft_max=self.draft_max,
                new_token_ids=(self.rng.randrange(self.alphabet),) if known else (),
                new_sequence=None if known else self._new(),
                tokens_left=1000 - known,
                feedback=self.feedback.pop(each, Feedback()),
            )
            for each, known in self.known.items()
        ]
        self.known = {each: max(known, PROMPT) + 1 for each, known in self.known.items()}
        ended, self.ended = tuple(self.ended), []
        load = StepLoad(len(rows), len(rows))
        report = StepReport(load=load, device_ms=STEP_MS + 0.5 * len(rows))
        number = next(self.rounds)
        return make_round(*rows, round_id=number, finished_ids=ended, report=report)

    def drafts(self) -> dict[int, Draft]:
        """Return the drafts of the next round, by sequence."""
        round_ = self.round()
        return {
            row.sequence_id: draft
            for row, draft in zip(round_.rows, drafted(self.proposer, round_), strict=True)
        }

    def _new(self) -> NewSequence:
        tokens = tuple(self.rng.choices(range(40_000), k=PROMPT))
        methods = None if self.draft_max else ()
        return NewSequence(tokens, PROMPT, Sampling(temperature=1.0), methods)


def drafted(proposer: Proposer, round_: Round) -> tuple[Draft, ...]:
    prepared = proposer.prepare(round_, has_model=False)
    return proposer.finish(prepared, (NO_DRAFT,) * len(round_.rows))


def proposer_of(methods: tuple[str, ...], followed_max: float = inf) -> Proposer:
    return Proposer(
        methods, [(n, STEP_MS + 0.5 * n) for n in (1, 16, 64)], followed_max=followed_max
    )


def least_calls(rows: int, draft_max: int) -> int:
    """Return how many Python functions a round calls in which nothing is wanted."""
    served, calls = Rows(proposer_of(WITHOUT_MODEL), draft_max), 0

    def note(_: FrameType, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    served.open(rows)
    found: list[int] = []
    for _ in range(60):
        round_, calls = served.round(), 0
        sys.setprofile(note)
        drafts = drafted(served.proposer, round_)
        sys.setprofile(None)
        if not any(draft.tokens or draft.wants_topk or draft.wants_levels for draft in drafts):
            found.append(calls)
    assert len(found) > 20, "it does not rest"
    return min(found)


@pytest.mark.parametrize("draft_max", [0, 7])
@pytest.mark.parametrize("rows", [1, 4, 48])
def test_rows_that_rest_call_next_to_nothing(rows: int, draft_max: int) -> None:
    assert least_calls(rows, draft_max) <= 12


WRONG = Feedback(head_tree=(HeadNode(-1, 0, (50_000,), (0,)),))


def test_a_head_is_told_of_a_few_texts_until_a_probe_was_in_vain_and_then_of_others() -> None:
    served = Rows(proposer_of(("head",), followed_max=4))
    served.open(10)
    told = list[list[int]]()
    for _ in range(600):
        drafts = served.drafts()
        told.append([each for each, draft in drafts.items() if draft.followed])
        wanting = [each for each, draft in drafts.items() if draft.wants_levels]
        assert {*wanting} <= {*told[-1]}
        served.feedback = dict.fromkeys(wanting, WRONG)
    assert told[:3] == [[1, 2, 3, 4], [1, 2, 3, 4], []]
    assert not any(told[3:]), "what a head has missed of a text it does not know later"
    served.close(3)
    served.open(10)
    assert [each for each, draft in served.drafts().items() if draft.followed] == [11, 12, 13, 14]


def test_a_head_that_pays_is_told_of_every_new_text() -> None:
    served = Rows(proposer_of(("head",), followed_max=1))
    served.alphabet = 1
    served.open(1)
    wanted = 0
    for _ in range(60):
        wanting = [each for each, draft in served.drafts().items() if draft.wants_levels]
        right = Feedback(head_tree=(HeadNode(-1, 0, (0, 7), (0, 50)),))
        served.feedback = dict.fromkeys(wanting, right)
        wanted += len(wanting)
    assert wanted > 30
    served.open(5)
    assert all(draft.followed for draft in served.drafts().values())
