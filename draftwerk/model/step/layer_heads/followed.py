"""What a draft head reads of a round: the states of prompts' last tokens and of committed ones."""

from collections.abc import Sequence
from itertools import islice

from torch import Tensor

from draftwerk.model.draft_head.head_windows import WAITING_MAX, HeadWindows
from draftwerk.model.step.row_plan import RowPlan
from draftwerk.model.step.sequences import CachedSequence
from draftwerk.model.step.tree_walk import TreeWalk
from draftwerk.speculative.protocol.rounds import Round, Row

SOURCE = "head"


def begin_windows(windows: HeadWindows | None, round_: Round) -> None:
    """Forget sequences that ended, and open those that begin and may be drafted for."""
    if windows is None:
        return
    windows.close(round_.finished_ids)
    for row in round_.rows:
        if row.new_sequence is None or row.branch is not None:
            continue
        windows.close((row.sequence_id,))
        methods = row.new_sequence.methods
        if (methods is None or SOURCE in methods) and not row.new_sequence.given:
            windows.open(row.sequence_id)


def followed_tokens(windows: HeadWindows | None, row: Row, sequence: CachedSequence) -> range:
    """Return which of a row's known tokens, by index, are read beside those with logits."""
    if windows is None or row.sequence_id not in windows or row.blend is not None or row.pools:
        return range(0)
    first = max(row.start, len(sequence.tokens) - WAITING_MAX)
    return range(first - row.start, row.stop - row.start - row.samples)


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
        (walk, [walk.plan.first + 1 + node for node in (-1, *walk.path)][: len(walk.tokens)])
        for walk in walks
        if walk.tokens and not walk.error and walk.plan.row.sequence_id in windows
    ]
    # One copy for all of them: a call takes longer than a row.
    read = iter(states[[row for _, rows in followed for row in rows]].unbind())
    for walk, rows in followed:
        row = walk.plan.row
        windows.follow(row.sequence_id, row.stop - 1, islice(read, len(rows)), walk.tokens)
