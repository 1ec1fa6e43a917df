"""A block table (PagedAttention): where one sequence's KV is, slot by slot."""

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile
from typing import NamedTuple

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.held_blocks import BlockList
from draftwerk.cache.prefix import ROOT, BlockNamer
from draftwerk.cache.replacement import Origin


class NameSalt(NamedTuple):
    """From where on a table's content is not what its tokens alone would give."""

    start: int
    """The first such slot."""
    name: str
    """Digest of all that the content depends on besides the tokens before it."""


class BlockTable(BlockList):
    """The blocks of one sequence.

    |<------- named: full, committed, shareable ------->|<-- private or forked -->|
    blocks[0]            ...            blocks[named-1]  blocks[named] ... blocks[-1]
    """

    def __init__(
        self,
        pool: BlockPool,
        namer: BlockNamer,
        name_space: str,
        salt: NameSalt | None = None,
    ) -> None:
        """With a salt, blocks from some slot on are found under the same salt alone."""
        super().__init__(pool)
        self.name_space = name_space
        self._namer = namer
        self._salt = salt
        self._names: list[bytes] = []

    @property
    def names(self) -> Sequence[bytes]:
        """The names of the first blocks, as far as they are full and committed."""
        return self._names

    def match(
        self,
        tokens: Sequence[int],
        names: list[bytes] | None = None,
        usable: Callable[[Sequence[bytes]], int] = len,
    ) -> int:
        """Start an empty table with every known block of the prompt; returns the slots found.

        The last token is never among them: something must be left to compute. `names` are those of
        the tokens' first blocks, as far as they were needed before; what is needed now is added.
        `usable` says how many of the blocks that are found a text can go on behind.
        """
        assert not self.blocks, "only an empty table can match a prefix"
        found = self.known(tokens, names)
        self._names = found[: usable(found)]
        for name in self._names:
            block = self.pool.find(name)
            assert block is not None, "it was found before"
            self.pool.reuse(block)
            self.blocks.append(block)
        return self.slots

    def known(self, tokens: Sequence[int], names: list[bytes] | None = None) -> list[bytes]:
        """Return the names of a prompt's first blocks that are in the pool, and take nothing;
        `names` are as in `match`."""
        heads = self._names_of(tokens, [] if names is None else names)
        return [*takewhile(lambda name: self.pool.find(name) is not None, heads)]

    def named(self, tokens: Sequence[int], count: int, names: list[bytes]) -> list[bytes]:
        """Return the names of a prompt's first blocks, at least `count`, which `names` keeps."""
        size = self.pool.block_size
        for index in range(len(names), count):
            names.append(self._next_name(names, tokens[index * size : (index + 1) * size]))
        return names

    def commit(self, tokens: Sequence[int], computed: int) -> None:
        """Name each block whose slots are all below `computed`, the count of committed KV slots."""
        size = self.pool.block_size
        for i in range(len(self._names), computed // size):
            name = self._next_name(self._names, tokens[i * size : (i + 1) * size])
            self._names.append(name)
            self.pool.name(self.blocks[i], name, Origin(i, self.name_space))

    def fork(self) -> "BlockTable":
        """Return a second table over the same blocks, copy-on-write."""
        twin = BlockTable(self.pool, self._namer, self.name_space, self._salt)
        self.share_with(twin)
        twin._names = list(self._names)
        return twin

    def truncate(self, slots: int) -> None:
        """Give back the blocks behind the first `slots` slots."""
        super().truncate(slots)
        del self._names[slots // self.pool.block_size :]

    def release(self) -> None:
        """Give back every block; the named ones stay in the pool's cache."""
        self.truncate(0)

    def check(self) -> None:
        """Assert that the table holds what it names."""
        super().check()
        assert len(self._names) <= len(self.blocks), "a name has no block"

    def _names_of(self, tokens: Sequence[int], names: list[bytes]) -> Iterator[bytes]:
        """Yield the names of a prompt's blocks but its last token's; `names` keeps those made."""
        size = self.pool.block_size
        for index in range((len(tokens) - 1) // size):
            yield self.named(tokens, index + 1, names)[index]

    def _next_name(self, names: Sequence[bytes], tokens: Sequence[int]) -> bytes:
        """Return the name of the block behind those that are named."""
        parent = names[-1] if names else ROOT
        space, end = self.name_space, (len(names) + 1) * self.pool.block_size
        if self._salt is not None and end > self._salt.start:
            space = f"{space} {self._salt.name}"
        return self._namer.name(parent, tokens, space)
