"""What a draft head reads of a round: the states of prompts' last tokens and of committed ones."""

from collections.abc import Sequence

from torch import Tensor

from draftwerk.model.draft_head.head_windows import ROWS_SHARED, HeadWindows
from draftwerk.model.step.row_plan import RowPlan
from draftwerk.model.step.row_walk import RowWalk
from draftwerk.model.step.sequences import CachedSequence
from draftwerk.speculative.protocol.rounds import Draft, Round, Row


def begin_windows(windows: HeadWindows | None, round_: Round) -> None:
    """Forget sequences that ended, and what is known of those that begin anew."""
    if windows is not None:
        windows.close(round_.finished_ids)
        windows.close(row.sequence_id for row in round_.rows if row.new_sequence is not None)


def followed_tokens(
    windows: HeadWindows | None, row: Row, draft: Draft, sequence: CachedSequence
) -> range:
    """Return which of a row's known tokens, by index, are read beside those with logits."""
    if windows is None or not is_followed(windows, row, draft) or row.blend or row.pools:
        return range(0)
    first = max(row.start, len(sequence.tokens) - windows.prompt_max)
    return range(first - row.start, row.stop - row.start - row.samples)


def is_followed(windows: HeadWindows, row: Row, draft: Draft) -> bool:
    """Whether a head is told of a row: it keeps something of as many texts as it drafts for."""
    return draft.followed and row.branch is None and windows.has_room(row.sequence_id)


def follow_prompts(windows: HeadWindows, states: Tensor, plans: Sequence[RowPlan]) -> None:
    """Take in the states without logits, which are those of `followed_tokens`."""
    for plan in plans:
        if plan.pooled and not plan.row.pools:
            row, tokens = plan.row, plan.sequence.tokens
            position = row.stop - row.samples - len(plan.pooled)
            following = tokens[position + 1 : position + 1 + len(plan.pooled)]
            own = states[plan.pooled.start : plan.pooled.stop].clone()
            rows = [(own, number) for number in range(len(plan.pooled))]
            windows.follow(row.sequence_id, position, rows, following)


def follow_walks(windows: HeadWindows, states: Tensor, walks: Sequence[RowWalk]) -> None:
    """Take in the states on accepted paths, and the token committed after each."""
    followed = [
        walk
        for walk in walks
        if walk.tokens and not walk.error and is_followed(windows, walk.plan.row, walk.plan.draft)
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
