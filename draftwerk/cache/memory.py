"""The memory of a sequence: its blocks, and its part of what else a model's layers keep of a text.

    enter, reserve ── begin_row ── commit ── begin_row ── commit ── leave
       what is cached is found;       what is committed is named; leaving gives all back
       the rest has room              and found by others from now on

`CachePools` is what all sequences take from. Every model has blocks; a kind of layer that keeps
something else attaches as a `MemoryKind` (`cache/kinds`), which no other module knows.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from sys import maxsize
from typing import Any, NamedTuple, Protocol, TypeVar

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.tables import BlockCopy, BlockList, BlockNamer, BlockTable, NameSalt

Kind = TypeVar("Kind")


class MemoryKind(ABC):
    """A kind of memory that some layers have beside blocks, in a pool of its own."""

    pool: BlockPool

    @property
    def chunk_max(self) -> int:
        """Known tokens that a row computes at most."""
        return maxsize

    @property
    def draft_max(self) -> int:
        """Drafted tokens in a row at most."""
        return maxsize

    @abstractmethod
    def part(
        self, name_space: str, prompt_count: int, is_salted: bool, slots_min: int
    ) -> "MemoryPart | None":
        """Return a sequence's empty part; None where it keeps nothing of this kind."""

    @abstractmethod
    def sizes(self, tokens_max: int) -> dict[str, Any]:
        """Return what is told of it to who refuses requests, by field of `MemorySizes`."""


class KindSizes(Protocol):
    """How much memory a model has of a kind."""

    def kind(self, block_count: int, block_size: int, rows: int) -> MemoryKind | None:
        """Return the empty kind, behind so many blocks, for so many rows under way of a sequence;
        None if it has nothing of it."""
        ...


class MemoryPart(Protocol):
    """One sequence's part of a kind."""

    @property
    def kind(self) -> MemoryKind: ...

    @property
    def lists(self) -> tuple[BlockList, ...]:
        """Its lists of blocks, which grow, are shared and are given back as the sequence's are."""
        return ()

    def entry_count(self, tokens: int) -> int:
        """Return how much a text of so many tokens takes of the pool as it enters."""
        ...

    def later_count(self, tokens: int) -> int:
        """Return how much it still takes row by row, of a text of so many tokens."""
        return 0

    def usable(self, names: Sequence[bytes]) -> int:
        """Return behind how many of the cached blocks a text can go on."""
        return len(names)

    def known(self, names: Sequence[bytes]) -> int:
        """Return how many of the usable blocks `enter` would keep, about."""
        return len(names)

    def enter(self, names: Sequence[bytes]) -> int | None:
        """Hold what it keeps of a text with these cached blocks; returns how many of those can be
        used, or None if there is no room."""
        ...

    def fields(self, slots: int) -> dict[str, Any]:
        """Return the fields of a `Row` that reaches to so many slots."""
        return {}

    def begin_row(self, start: int, stop: int, reach: int) -> dict[str, Any]:
        """Return those of a row that computes start .. stop, and drafts as far as `reach`."""
        return self.fields(reach)

    def commit(self, table: BlockTable, named: int, start: int, computed: int) -> None:
        """Take in that the oldest row is answered, which has come from `start` to `computed`; the
        blocks behind the first `named` have just been named."""
        ...

    def fork(self) -> "MemoryPart | None":
        """Return a second one over the same; None if this stays with the first sequence."""
        return None

    def leave(self) -> None:
        """Give back what is in no list."""

    def forget_named(self, names: Sequence[bytes]) -> None:
        """Have nothing in no list served again of what was computed for it."""

    def holds(self) -> Iterable[int]:
        """Return what it holds of its pool, in no list."""
        return ()

    def check(self) -> None:
        """Assert every invariant."""


class RowMemory(NamedTuple):
    """Blocks and other memory that a row reads and writes."""

    copies: list[BlockCopy]
    """Made before anything is written."""
    draft_max: int
    """Drafted tokens that find room."""
    fields: dict[str, Any]
    """The fields of its `Row` that name them."""


@dataclass(slots=True)
class SequenceMemory:
    """The memory of one sequence."""

    table: BlockTable
    parts: tuple[MemoryPart, ...] = ()
    """Its part of each other kind that the model has."""
    names: list[bytes] = field(default_factory=list[bytes])
    """Names of its first blocks, as far as they were looked for: one that waits is named once."""

    @property
    def block_size(self) -> int:
        """Slots of a block."""
        return self.table.block_size

    @property
    def block_count(self) -> int:
        """Blocks of its table."""
        return len(self.table.blocks)

    @property
    def slots(self) -> int:
        """Tokens that there are blocks for now."""
        return self.table.slots

    def lists(self) -> Iterator[BlockList]:
        """Yield its blocks in each pool."""
        yield self.table
        for part in self.parts:
            yield from part.lists

    def part(self, kind: type[Kind]) -> Kind | None:
        """Return its part of a kind, if it has one."""
        return next((part for part in self.parts if isinstance(part, kind)), None)

    # --- entering -----------------------------------------------------------------------------

    def known(self, tokens: Sequence[int]) -> int:
        """Return how many tokens `enter` would find computed, about, and take nothing."""
        names = self.table.known(tokens, self.names)
        names = names[: self._usable(names)]
        return min([len(names), *(part.known(names) for part in self.parts)]) * self.block_size

    def name(self, tokens: Sequence[int], index: int) -> bytes:
        """Return the name of a block of a text, which tells all that is before its end."""
        return self.table.named(tokens, index + 1, self.names)[index]

    def enter(self, tokens: Sequence[int]) -> int | None:
        """Hold what is cached of a text, and what it needs besides blocks; returns how many tokens
        are found, or None if there is no room. What it then holds is given back by `leave`."""
        self.table.match(tokens, self.names, self._usable)
        for part in self.parts:
            # A kind may keep less than there are blocks: the next one enters with what is left.
            count = part.enter(self.table.names)
            if count is None:
                return None
            if count < len(self.table.names):
                self.truncate(count * self.block_size)
        return self.slots

    def _usable(self, names: Sequence[bytes]) -> int:
        # A text goes on only where all kinds know what was before: the least decides.
        return min([len(names), *(part.usable(names) for part in self.parts)])

    def reserve(self, slots: int) -> bool:
        """Take blocks for a whole text, or change nothing and return False.

        What other kinds need is taken row by row.
        """
        return self.table.grow(slots)

    # --- rows ---------------------------------------------------------------------------------

    def reserve_row(self, slots: int) -> bool:
        """Take every block that a row of so many slots needs; False if not all can be had."""
        return all(blocks.grow(slots) for blocks in self.lists())

    def free_slots(self, known: int, shares: int) -> int:
        """Return how many slots there are behind those `known`, with a share of what is free."""
        return min(blocks.free_slots(known, shares) for blocks in self.lists())

    def make_writable(self, start: int) -> list[BlockCopy] | None:
        """Copy on write: replace shared blocks from the slot `start` on by copies.

        Returns the copies to make, or None (and changes nothing) if a pool is too empty.
        """
        # All pools are asked before one is changed.
        if not all(blocks.has_copies(start) for blocks in self.lists()):
            return None
        return [pair for blocks in self.lists() for pair in blocks.make_writable(start) or ()]

    def fields(self, slots: int) -> dict[str, Any]:
        """Return the fields of a `Row` that name its blocks as far as so many slots."""
        fields: dict[str, Any] = {"blocks": self.table.first_blocks(slots)}
        for part in self.parts:
            fields.update(part.fields(slots))
        return fields

    def begin_row(self, start: int, stop: int, end: int, draft_max: int) -> RowMemory | None:
        """Return what a row uses that computes start .. stop; None if there is no room for copies.

        Drafts may be written behind `end`, as far as blocks were reserved.
        """
        copies = self.make_writable(start)
        if copies is None:
            return None
        # Drafts are only worth a try: they are cut to the room that there is.
        draft_max = min(draft_max, min(blocks.slots for blocks in self.lists()) - end)
        reach = end + draft_max
        fields = {"blocks": self.table.first_blocks(reach)}
        for part in self.parts:
            fields.update(part.begin_row(start, stop, reach))
        return RowMemory(copies, draft_max, fields)

    def commit(self, tokens: Sequence[int], start: int, computed: int) -> None:
        """Take in that the oldest row is answered, which has come from `start` to `computed`: full
        blocks are named, and what no later row reads goes home."""
        # Counted before: the parts keep what belongs to blocks that are named just now.
        named = len(self.table.names)
        self.table.commit(tokens, computed)
        for part in self.parts:
            part.commit(self.table, named, start, computed)

    # --- forking and leaving ------------------------------------------------------------------

    def fork(self) -> "SequenceMemory":
        """Return a second one over the same blocks, copy-on-write."""
        # A part that cannot be shared stays with the first; the twin goes on from blocks alone.
        twins = (part.fork() for part in self.parts)
        return SequenceMemory(self.table.fork(), tuple(twin for twin in twins if twin is not None))

    def truncate(self, slots: int) -> None:
        """Give back the blocks behind the first `slots` slots."""
        for blocks in self.lists():
            blocks.truncate(slots)

    def leave(self) -> None:
        """Give everything back; what has a name stays cached."""
        self.truncate(0)
        for part in self.parts:
            part.leave()

    def forget(self) -> None:
        """Have nothing served again of what was computed for it."""
        for part in self.parts:
            part.forget_named(self.table.names)
        for blocks in self.lists():
            blocks.forget()

    def held(self) -> Iterator[tuple[BlockPool, int]]:
        """Yield all that it holds, with the pool that it is of."""
        for blocks in self.lists():
            yield from ((blocks.pool, block) for block in blocks.held())
        for part in self.parts:
            yield from ((part.kind.pool, slot) for slot in part.holds())

    def check(self) -> None:
        """Assert that it holds what it names."""
        for blocks in self.lists():
            blocks.check()
        for part in self.parts:
            part.check()


@dataclass(frozen=True, slots=True)
class CachePools:
    """The pools that all sequences take from."""

    blocks: BlockPool
    kinds: tuple[MemoryKind, ...] = ()
    """The other kinds of memory that the model's layers have."""

    def memory(
        self,
        namer: BlockNamer,
        name_space: str,
        prompt_count: int = 0,
        salt: NameSalt | None = None,
        slots_min: int = 0,
    ) -> SequenceMemory:
        """Return the empty memory of a sequence.

        `slots_min` are what it takes at least of a kind that has a few slots for each sequence.
        """
        sequence = name_space, prompt_count, salt is not None, slots_min
        parts = (kind.part(*sequence) for kind in self.kinds)
        return SequenceMemory(
            BlockTable(self.blocks, namer, name_space, salt),
            tuple(part for part in parts if part is not None),
        )

    def kind(self, kind: type[Kind]) -> Kind | None:
        """Return what the model has of a kind, if anything."""
        return next((own_kind for own_kind in self.kinds if isinstance(own_kind, kind)), None)

    def all(self) -> tuple[BlockPool, ...]:
        """Return all pools."""
        return self.blocks, *(kind.pool for kind in self.kinds)

    def available(self) -> tuple[int, ...]:
        """Return how much could be had now of each pool."""
        return tuple(pool.available for pool in self.all())

    @property
    def chunk_max(self) -> int:
        """Known tokens that a row computes at most."""
        return min((kind.chunk_max for kind in self.kinds), default=maxsize)

    @property
    def draft_max(self) -> int:
        """Drafted tokens in a row at most."""
        return min((kind.draft_max for kind in self.kinds), default=maxsize)

    def has(self, counts: Mapping[BlockPool, int]) -> bool:
        """Return whether so much is available of each pool."""
        return all(pool.available >= count for pool, count in counts.items())

    def has_for(self, memory: SequenceMemory, blocks: int, tokens: int) -> bool:
        """Return whether a text of so many tokens, which takes so many blocks, could enter."""
        parts = {part.kind.pool: part.entry_count(tokens) for part in memory.parts}
        return self.has({self.blocks: blocks, **parts})

    def has_later(self, memories: Iterable[tuple[SequenceMemory, int]]) -> bool:
        """Return whether all of these texts, of so many tokens, find what they take row by row."""
        counts = Counter[BlockPool]()
        for memory, tokens in memories:
            for part in memory.parts:
                counts[part.kind.pool] += part.later_count(tokens)
        return self.has(counts)

    def check(self, memories: Iterable[SequenceMemory]) -> None:
        """Assert that each block and slot is held by exactly the memories that name it."""
        holders = Counter[tuple[BlockPool, int]]()
        for memory in memories:
            memory.check()
            holders.update(memory.held())
        for pool in self.all():
            pool.check()
            leaked = [n for n in pool.ids if pool.holders(n) != holders[pool, n]]
            assert not leaked, "a block leaked"
