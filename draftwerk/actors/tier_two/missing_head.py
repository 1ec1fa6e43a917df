"""Which blocks of a text are worth loading: those of its head, as far as all are to be had.

Of a model with recurrent layers a head is of use up to a snapshot alone, so the last snapshot that
is to be had decides, and what lies behind it is computed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from draftwerk.actors.tier_two.kept_pool import KeptPool


class MissingHead(NamedTuple):
    """The blocks to be loaded for a text."""

    blocks: tuple[bytes, ...] = ()
    snapshots: tuple[bytes, ...] = ()
    """One at most: the last block's."""
    spared: int = 0
    """Blocks that need not be computed then."""


NOTHING = MissingHead()


def to_load(names: Iterable[bytes], blocks: KeptPool, snapshots: KeptPool | None) -> MissingHead:
    """Return what is to be loaded for a text's blocks, of which `names` are the full ones."""
    head: list[bytes] = []
    for name in names:
        if not blocks.holds(name) and not blocks.keeps(name):
            break
        head.append(name)
    if snapshots is not None:
        return _to_a_snapshot(head, blocks, snapshots)
    missing = tuple(name for name in head if not blocks.holds(name))
    return MissingHead(missing, (), len(missing))


def _to_a_snapshot(head: Sequence[bytes], blocks: KeptPool, snapshots: KeptPool) -> MissingHead:
    count = _last(head, lambda name: snapshots.holds(name) or snapshots.keeps(name))
    missing = tuple(name for name in head[:count] if not blocks.holds(name))
    present = next((n for n, name in enumerate(head) if not blocks.holds(name)), len(head))
    spared = count - _last(head[:present], snapshots.holds)
    if not spared:
        return NOTHING
    wanted = () if snapshots.holds(head[count - 1]) else (head[count - 1],)
    return MissingHead(missing, wanted, spared)


def _last(names: Sequence[bytes], fits: Callable[[bytes], bool]) -> int:
    """Return how many names there are up to the last that fits."""
    return next((n for n in range(len(names), 0, -1) if fits(names[n - 1])), 0)
