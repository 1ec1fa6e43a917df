"""What a draft head reads of a round: the states of prompts' last tokens and of committed ones."""

from collections.abc import Mapping, Sequence

from torch import Tensor

from draftwerk.model.draft_head.head_windows import ROWS_SHARED, HeadWindows
from draftwerk.model.draft_head.tree import Drafter
from draftwerk.model.step.loaded_model import BoundHead
from draftwerk.model.step.row_walk import RowPlan, RowWalk
from draftwerk.model.step.sequences import CachedSequence
from draftwerk.model.step.target_runner import RowOutputs, StepOption, StepProgress
from draftwerk.speculative.rounds import Draft, Round, Row


class FollowedTexts(StepOption):
    """Keeps what a head reads of the texts that it drafts for."""

    def __init__(self, head: BoundHead[Drafter], windows: HeadWindows) -> None:
        self._head, self._windows = head, windows
        windows.clear()

    def begin(self, round_: Round) -> None:
        """Forget sequences that ended, and what is known of those that begin anew."""
        self._windows.close(round_.finished_ids)
        self._windows.close(row.sequence_id for row in round_.rows if row.new_sequence is not None)

    def add_outputs(
        self, outputs: RowOutputs, row: Row, draft: Draft, sequence: CachedSequence
    ) -> None:
        if not row.options.pools and is_followed(self._windows, row, draft):
            first = max(row.start, len(sequence.tokens) - self._windows.prompt_max)
            outputs.hidden = range(first - row.start, row.stop - row.start - row.samples)

    def draft_next(self, step: StepProgress) -> None:
        hidden = self._head.states[len(step.builder.outputs) :]
        follow_prompts(self._windows, hidden, step.rows)
        follow_walks(self._windows, self._head.states, step.walks)

    def check(self, sequences: Mapping[int, CachedSequence]) -> None:
        self._windows.check(sequences)


def is_followed(windows: HeadWindows, row: Row, draft: Draft) -> bool:
    """Whether a head is told of a row: it keeps something of as many texts as it drafts for."""
    return draft.followed and not row.options.in_group and windows.has_room(row.sequence_id)


def follow_prompts(windows: HeadWindows, states: Tensor, plans: Sequence[RowPlan]) -> None:
    """Take in the states without logits, which are those of `followed_tokens`."""
    for plan in plans:
        if plan.hidden and not plan.row.options.pools:
            row, tokens = plan.row, plan.sequence.tokens
            position = row.stop - row.samples - len(plan.hidden)
            following = tokens[position + 1 : position + 1 + len(plan.hidden)]
            own = states[plan.hidden.start : plan.hidden.stop].clone()
            rows = [(own, number) for number in range(len(plan.hidden))]
            windows.follow(row.sequence_id, position, rows, following)


def follow_walks(windows: HeadWindows, states: Tensor, walks: Sequence[RowWalk]) -> None:
    """Take in the states on accepted paths, and the token committed after each."""
    followed = [
        walk
        for walk in walks
        if walk.tokens and is_followed(windows, walk.plan.row, walk.plan.draft)
    ]
    if not followed:
        return
    rows = [
        walk.plan.first + 1 + node
        for walk in followed
        for node in (-1, *walk.path)[: len(walk.tokens)]
    ]
    if len(states) > ROWS_SHARED:  # one copy: a call takes longer than a row
        states, rows = states[rows], range(len(rows))
    numbers = iter(rows)
    for walk in followed:
        row, own = walk.plan.row, [(states, next(numbers)) for _ in walk.tokens]
        windows.follow(row.sequence_id, row.stop - 1, own, walk.tokens)
