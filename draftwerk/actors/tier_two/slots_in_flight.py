"""Blocks and slots of states that rounds under way use: nothing is loaded into those."""

from collections.abc import Iterable

from draftwerk.speculative.rounds import Round


def blocks_in_flight(rounds: Iterable[Round]) -> set[int]:
    """Return every block that these rounds may write to."""
    found = set[int]()
    for round_ in rounds:
        found.update(target for _, target in round_.copies)
        for row in round_.rows:
            found.update(row.blocks, row.options.window_blocks)
            for read in () if row.options.blend is None else row.options.blend.reads:
                found.update(read.blocks)
    return found


def states_in_flight(rounds: Iterable[Round]) -> set[int]:
    """Return every slot of states that these rounds read or write."""
    found = set[int]()
    for state in (row.options.state for round_ in rounds for row in round_.rows):
        if state is not None:
            found.update((state.source, state.target), (slot for _, slot in state.saves))
    return found
