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
from dataclasses import dataclass, field, replace
from sys import maxsize
from typing import Any, NamedTuple, Protocol, TypeVar

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.eviction.replacement import Origin
from draftwerk.cache.tables import ROOT, BlockCopy, BlockNamer, BlockTable, NameSalt

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
        """Return the fields of `MemorySizes` that are its own."""


class MemoryPart(Protocol):
    """One sequence's part of a kind. A table is grown, forked and given back as its own is."""

    @property
    def kind(self) -> MemoryKind: ...

    def entry_count(self, tokens: int) -> int:
        """Return how much a text of so many tokens takes of the pool when it enters."""
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
        """Hold what it keeps of a text; returns how many of its cached blocks can be used, or None
        if there is no room."""
        ...

    def begin_row(self, start: int, stop: int, reach: int) -> dict[str, Any]:
        """Return options of a `Row` that computes start .. stop, and drafts as far as `reach`."""
        return {}

    def commit(self, memory: "SequenceMemory", named: int, start: int, computed: int) -> None:
        """Take in `SequenceMemory.commit`, which has named the blocks behind the first `named`."""
        ...

    def leave(self) -> None:
        """Give back what is in no table."""

    def forget_named(self, names: Sequence[bytes]) -> None:
        """Have nothing in no table served again of what was computed for it."""

    def holds(self) -> Iterable[int]:
        """Return what it holds of its pool, in no table."""
        return ()

    def check(self) -> None:
        """Assert every invariant."""


class RowMemory(NamedTuple):
    """Blocks and other memory that a row reads and writes."""

    copies: list[BlockCopy]
    draft_max: int
    """Drafted tokens that find room."""
    blocks: tuple[int, ...]
    options: dict[str, Any]
    """Options of its `Row`, from each other kind."""


@dataclass(slots=True)
class SequenceMemory:
    """The memory of one sequence.

    |<------- named: full, committed, shareable ------->|<-- private or forked -->|
    blocks[0]            ...            blocks[named-1]  blocks[named] ... blocks[-1]
    """

    table: BlockTable
    namer: BlockNamer
    name_space: str
    salt: NameSalt | None = None
    parts: tuple[MemoryPart, ...] = ()
    """Its part of each other kind that the model has."""
    names: list[bytes] = field(default_factory=list[bytes])
    """Names of its first blocks, as far as they were needed: one that waits is named once."""
    named: int = 0
    tables: list[BlockTable] = field(init=False)
    """Its blocks in each pool: all are grown, copied and truncated together."""

    def __post_init__(self) -> None:
        self.tables = [self.table, *(one for one in self.parts if isinstance(one, BlockTable))]

    @property
    def block_size(self) -> int:
        return self.table.block_size

    @property
    def block_count(self) -> int:
        return len(self.table.blocks)

    @property
    def slots(self) -> int:
        """Tokens that there are blocks for now."""
        return len(self.table.blocks) * self.table.block_size

    def part(self, kind: type[Kind]) -> Kind | None:
        """Return its part of a kind, if it has one."""
        return next((part for part in self.parts if isinstance(part, kind)), None)

    # --- entering -----------------------------------------------------------------------------

    def name(self, tokens: Sequence[int], index: int) -> bytes:
        """Return the name of a block of a text, made from all that is before its end."""
        names, size = self.names, self.table.block_size
        for start in range(len(names) * size, (index + 1) * size, size):
            space, stop = self.name_space, start + size
            # From this block on the tokens alone do not say what is in it.
            if self.salt is not None and stop > self.salt.start:
                space = f"{space} {self.salt.name}"
            parent = names[-1] if names else ROOT
            names.append(self.namer.name(parent, tokens[start:stop], space))
        return names[index]

    def _found(self, tokens: Sequence[int]) -> list[bytes]:
        """Return the names of a text's first blocks that are cached and that it can follow."""
        # The last token is never among them: something must be left to compute.
        find, names = self.table.pool.find, list[bytes]()
        for index in range((len(tokens) - 1) // self.block_size):
            name = self.name(tokens, index)
            # What is behind the first one missing cannot be used without it.
            if find(name) is None:
                break
            names.append(name)
        # A text goes on only where all kinds know what was before: the least decides.
        return names[: min((part.usable(names) for part in self.parts), default=len(names))]

    def known(self, tokens: Sequence[int]) -> int:
        """Return how many tokens `enter` would find computed, about, and take nothing."""
        names = self._found(tokens)
        return min([len(names), *(part.known(names) for part in self.parts)]) * self.block_size

    def enter(self, tokens: Sequence[int]) -> int | None:
        """Hold what is cached of a text; returns how many tokens were found, or None if other kinds
        have no room. Whatever it holds then, `leave` gives back."""
        assert not self.table.blocks, "only an empty table can match a prefix"
        names = self._found(tokens)
        self.table.blocks.extend(map(self.table.pool.reuse, names))
        self.named = len(names)
        for part in self.parts:
            # A kind may keep less than there are blocks: the next one enters with what is left.
            count = part.enter(names[: self.named])
            if count is None:
                return None
            if count < self.named:
                self._cut(count * self.block_size)
        return self.slots

    def reserve(self, slots: int) -> bool:
        """Take blocks for a whole text, or change nothing and return False."""
        # What other kinds need is taken row by row.
        return self.table.grow(slots)

    # --- rows ---------------------------------------------------------------------------------

    def reserve_row(self, slots: int) -> bool:
        """Take the blocks that a row of so many slots needs; False if some are wanting."""
        # Not a generator: this and what follows runs for each row of each round.
        for table in self.tables:  # noqa: SIM110
            if not table.grow(slots):
                return False
        return True

    def free_slots(self, known: int, shares: int) -> int:
        """Return how many slots there are behind so many, with a share of what is free."""
        begun = self.table.pool.blocks_for(known)
        blocks = [
            max(begun, len(table.blocks)) + table.pool.available // shares for table in self.tables
        ]
        return min(blocks) * self.table.block_size - known

    def make_writable(self, start: int) -> list[BlockCopy] | None:
        """Copy on write: replace shared blocks from the slot `start` on by copies; returns those to
        make, or None, and changes nothing, if a pool is too empty."""
        # From the start of its block on: tokens before `start` are copied along.
        first, copies = start // self.table.block_size, list[BlockCopy]()
        shared = [table.pool.shared(table.blocks[first:]) for table in self.tables]
        # All pools are asked before one is changed.
        for table, blocks in zip(self.tables, shared, strict=True):
            if blocks and len(blocks) > table.pool.available:
                return None
        for table, blocks in zip(self.tables, shared, strict=True):
            copies += table.make_writable(first, blocks)
        return copies

    def row_options(self, slots: int) -> dict[str, Any]:
        """Return options of a `Row`: its blocks of other kinds, as far as so many slots."""
        return {table.row_field: table.first_blocks(slots) for table in self.tables[1:]}

    def begin_row(self, start: int, stop: int, end: int, draft_max: int) -> RowMemory | None:
        """Return what a row uses that computes start .. stop and drafts behind `end`, as far as
        blocks were reserved; None if there is no room for copies."""
        copies = self.make_writable(start)
        if copies is None:
            return None
        # Drafts are only worth a try: they are cut to the room that there is.
        for table in self.tables:
            draft_max = min(draft_max, len(table.blocks) * table.block_size - end)
        reach = end + draft_max
        options = self.row_options(reach)
        for part in self.parts:
            options.update(part.begin_row(start, stop, reach))
        return RowMemory(copies, draft_max, self.table.first_blocks(reach), options)

    def commit(self, tokens: Sequence[int], start: int, computed: int) -> None:
        """Take in that the oldest row, which began at `start`, is answered up to `computed`: full
        blocks are named, and what no later row reads is given back."""
        first = self.named
        self.named = max(first, computed // self.table.block_size)
        for index in range(first, self.named):
            name, origin = self.name(tokens, index), Origin(index, self.name_space)
            self.table.pool.name(self.table.blocks[index], name, origin)
        for part in self.parts:
            part.commit(self, first, start, computed)

    # --- forking and leaving ------------------------------------------------------------------

    def fork(self) -> "SequenceMemory":
        """Return a second one over the same blocks, copy-on-write."""
        # What is no table cannot be shared: it stays with the first.
        parts = tuple(part.fork() for part in self.parts if isinstance(part, BlockTable))
        table, names = self.table.fork(), list(self.names)
        return replace(self, table=table, parts=parts, names=names)

    def _cut(self, slots: int) -> None:
        for table in self.tables:
            table.truncate(slots)
        self.named = min(self.named, slots // self.block_size)

    def truncate(self, slots: int) -> None:
        """Give back the blocks behind the first `slots` slots: the text goes on as another."""
        self._cut(slots)
        del self.names[slots // self.block_size :]

    def leave(self) -> None:
        """Give everything back; what has a name stays cached, and the text may enter again."""
        self._cut(0)
        for part in self.parts:
            part.leave()

    def forget(self) -> None:
        """Have nothing found again of what was computed for it."""
        for part in self.parts:
            part.forget_named(self.names[: self.named])
        for table in self.tables:
            table.pool.forget(table.held())

    def held(self) -> Iterator[tuple[BlockPool, int]]:
        """Yield all that it holds, each with its pool."""
        for table in self.tables:
            yield from ((table.pool, block) for block in table.held())
        for part in self.parts:
            yield from ((part.kind.pool, slot) for slot in part.holds())

    def check(self) -> None:
        """Assert that it holds what it names."""
        assert self.named <= min(len(self.names), self.block_count), "a name has no block"
        for table in self.tables:
            table.check()
        for part in self.parts:
            part.check()


class CachePools:
    """The pools that all sequences take from."""

    def __init__(self, blocks: BlockPool, kinds: tuple[MemoryKind, ...] = ()) -> None:
        self.blocks = blocks
        self.kinds = kinds
        self.all = blocks, *(kind.pool for kind in kinds)
        self.chunk_max = min((kind.chunk_max for kind in kinds), default=maxsize)
        self.draft_max = min((kind.draft_max for kind in kinds), default=maxsize)

    def memory(
        self,
        namer: BlockNamer,
        name_space: str,
        prompt_count: int = 0,
        salt: NameSalt | None = None,
        slots_min: int = 0,
    ) -> SequenceMemory:
        """Return the empty memory of a sequence, with so many slots at least of kinds with some."""
        sequence = name_space, prompt_count, salt is not None, slots_min
        parts = (kind.part(*sequence) for kind in self.kinds)
        kept = tuple(part for part in parts if part is not None)
        return SequenceMemory(BlockTable(self.blocks), namer, name_space, salt, kept)

    def kind(self, kind: type[Kind]) -> Kind | None:
        """Return what the model has of a kind, if anything."""
        return next((own_kind for own_kind in self.kinds if isinstance(own_kind, kind)), None)

    def available(self) -> tuple[int, ...]:
        """Return how much could be had now of each pool."""
        return tuple(pool.available for pool in self.all)

    def has(self, counts: Mapping[BlockPool, int]) -> bool:
        """Return whether each pool has so much."""
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
        for pool in self.all:
            pool.check()
            leaked = [n for n in pool.ids if pool.holders(n) != holders[pool, n]]
            assert not leaked, "a block leaked"
