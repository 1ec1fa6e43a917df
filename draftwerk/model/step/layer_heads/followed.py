"""What a draft head reads of a round: the states of prompts' last tokens and of committed ones."""

from collections.abc import Sequence

from torch import Tensor

from draftwerk.model.draft_head.head_windows import WAITING_MAX, HeadWindows
from draftwerk.model.step.row_plan import RowPlan
from draftwerk.model.step.sequences import CachedSequence
from draftwerk.model.step.tree_walk import TreeWalk
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
    first = max(row.start, len(sequence.tokens) - WAITING_MAX)
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
            windows.follow(row.sequence_id, position, own, following)


def follow_walks(windows: HeadWindows, states: Tensor, walks: Sequence[TreeWalk]) -> None:
    """Take in the states on accepted paths, and the token committed after each."""
    followed = [
        walk
        for walk in walks
        if walk.tokens and not walk.error and is_followed(windows, walk.plan.row, walk.plan.draft)
    ]
    if not followed:
        return
    # One copy for all that commit a single token: a call takes longer than a row. All of it stays
    # as long as one of them waits, so there is nothing else in it.
    single = iter(states[[walk.plan.first for walk in followed if not walk.path]].unbind())
    for walk in followed:
        row, first = walk.plan.row, walk.plan.first
        rows = [first, *(first + 1 + node for node in walk.path)][: len(walk.tokens)]
        own = states[rows] if walk.path else (next(single),)
        windows.follow(row.sequence_id, row.stop - 1, own, walk.tokens)
