"""What must hold of a row before it is computed; a row that fails is answered alone."""

from torch import Tensor

from draftwerk.model.batch.batch import MASKED_MAX, Pages, is_chain
from draftwerk.model.step.sequences import BadRow, CachedSequence
from draftwerk.speculative.rounds import Draft, Row


def check_row(
    row: Row, draft: Draft, sequence: CachedSequence, pages: Pages, vocab_size: int
) -> None:
    """Raise BadRow unless the row's tokens, slots and draft are all in range."""
    known = len(sequence.tokens)
    is_empty = row.start >= row.stop and not (row.start == row.stop and _is_known(row))
    if is_empty or not 0 <= row.start <= row.stop <= known:
        raise BadRow(f"row {row.start}..{row.stop} is outside its {known} known tokens")
    if row.samples and row.stop != known:
        raise BadRow(f"a sampling row stops at {row.stop}, not at its {known} known tokens")
    if draft.tokens or draft.parents:
        _check_draft(row, draft, vocab_size)
    if pages.states is not None:
        _check_state(row, pages.states)
    reserved = -(-(row.stop + len(draft.tokens)) // pages.block_size)
    if len(row.blocks) < reserved:
        raise BadRow(f"{len(row.blocks)} blocks do not hold {row.stop + len(draft.tokens)} slots")
    _check_blocks(row, sequence, pages)
    if pages.window is not None:
        _check_window(row, reserved, pages)
    if not (_within(sequence.tokens[row.start : row.stop], vocab_size)):
        raise BadRow("a token is outside the vocabulary")
    if row.options.answers and not _within(row.options.answers, vocab_size):
        raise BadRow("an answer is outside the vocabulary")


def _check_blocks(row: Row, sequence: CachedSequence, pages: Pages) -> None:
    """Raise BadRow unless the blocks that no row before has named are in the pages.

    Those behind the row's start may be others than before.
    """
    known = min(sequence.checked_blocks, row.start // pages.block_size)
    if known < len(row.blocks) and not _within(row.blocks[known:], pages.block_count):
        raise BadRow("a block is outside the pages")
    sequence.checked_blocks = len(row.blocks)


def _check_window(row: Row, reserved: int, pages: Pages) -> None:
    """Raise BadRow unless layers with windows have every block that the row reads or writes."""
    assert pages.window is not None
    if len(row.options.window_blocks) < reserved:
        raise BadRow("a row without blocks of its windows")
    kept = min(pages.window_blocks.kept, reserved)
    first = pages.window_blocks.first_read(row.start, pages.block_size)
    held = (*row.options.window_blocks[:kept], *row.options.window_blocks[first:reserved])
    if min(held) < 0:
        raise BadRow("a block within the window is missing")
    begin = pages.window_first
    if min(held) < begin or max(held) >= begin + pages.window.keys.shape[1]:
        raise BadRow("a block is outside the pages of layers with windows")


def _check_state(row: Row, states: Tensor) -> None:
    """Raise BadRow unless the row goes on from the state of its start, and leaves that one."""
    state, count = row.options.state, len(states)
    if state is None:
        raise BadRow("a row of a recurrent model without a state")
    if not -1 <= state.source < count or not 0 <= state.target < count:
        raise BadRow("a state is outside its slots")
    if state.source == state.target:
        raise BadRow("a state is written where it is read")
    held = 0 if state.source < 0 else int(states[state.source, 0])
    if held != row.start:
        raise BadRow(f"the state is that of position {held}, the row starts at {row.start}")


def _is_known(row: Row) -> bool:
    """Whether the row may have nothing of its own to compute but its draft."""
    if row.options.blend is not None:
        return True
    return row.options.branch is not None and row.samples and bool(row.options.branch.known)


def _check_draft(row: Row, draft: Draft, vocab_size: int) -> None:
    count = len(draft.tokens)
    if not _within(draft.tokens, vocab_size):
        raise BadRow("a drafted token is outside the vocabulary")
    if count > (row.draft_max if row.samples else 0):
        raise BadRow(f"{count} drafted nodes where {row.draft_max} are reserved")
    if is_chain(draft):
        return
    if len(draft.parents) != count:
        raise BadRow(f"{len(draft.parents)} parents for {count} drafted nodes")
    if count >= MASKED_MAX:
        raise BadRow(f"a tree of {count} nodes; at most {MASKED_MAX - 1} fit a mask")
    if any(not -1 <= parent < node for node, parent in enumerate(draft.parents)):
        raise BadRow("a drafted node comes before its parent")


def _within(numbers: tuple[int, ...] | list[int], end: int) -> bool:
    return not numbers or (min(numbers) >= 0 and max(numbers) < end)
