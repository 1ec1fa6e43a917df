"""The store: finished outputs of the same name space as a draft source.

Only committed text, only within one name space (a tenant, or a cache salt: as for the names of
blocks), and bounded: each has an old and a young generation, and a full young one takes the place
of the old.
"""

from collections import OrderedDict
from collections.abc import Sequence

from draftwerk.speculative.rounds import Row
from draftwerk.speculative.sources.ngram_index import GAP, Occurrences, SequenceText
from draftwerk.speculative.sources.recycle import Successors
from draftwerk.speculative.sources.sequence_noise import SequenceNoise
from draftwerk.speculative.sources.suffix import Ballot, grow
from draftwerk.speculative.sources.tree import DraftSource, DraftTree

GENERATION_MAX = 16_384
"""Tokens of a generation; about 80 bytes each."""
NAME_SPACES_MAX = 32
"""Name spaces remembered; one with everything full takes about 10 MB."""


class Store:
    """One name space's finished outputs."""

    __slots__ = ("generation_max", "generations")

    def __init__(self, generation_max: int = GENERATION_MAX) -> None:
        self.generation_max = generation_max
        self.generations = [Occurrences()]

    def learn(self, tokens: Sequence[int]) -> None:
        """Add one output, its newest part if it is longer than a generation."""
        kept = [*tokens[1 - self.generation_max :], GAP]
        if len(self.generations[0].tokens) + len(kept) > self.generation_max:
            self.generations = [Occurrences(), self.generations[0]]
        young = self.generations[0]
        young.append(kept)
        young.index(len(kept))

    @property
    def size(self) -> int:
        """Return how many tokens are held, padding included."""
        return sum(len(generation.tokens) for generation in self.generations)


class Memory:
    """The memory that outlives the sequences of a name space."""

    __slots__ = ("store", "successors")

    def __init__(self) -> None:
        self.store = Store()
        self.successors = Successors()

    def read(self, row: Row) -> None:
        """Take in what a row of one of the sequences brings, whatever sources it has."""
        if row.feedback.topk:
            self.successors.learn(row.feedback.topk)


class OutputStores:
    """The memory of every name space; the one unused for longest is forgotten first."""

    def __init__(self, name_spaces_max: int = NAME_SPACES_MAX) -> None:
        self._name_spaces_max = name_spaces_max
        self._by_name_space: OrderedDict[str, Memory] = OrderedDict()

    def of(self, name_space: str) -> Memory:
        """Return a name space's memory, a new one if it has none."""
        memory = self._by_name_space.get(name_space)
        if memory is None:
            memory = self._by_name_space[name_space] = Memory()
            if len(self._by_name_space) > self._name_spaces_max:
                self._by_name_space.popitem(last=False)
        self._by_name_space.move_to_end(name_space)
        return memory

    def check(self) -> None:
        """Assert every bound."""
        assert len(self._by_name_space) <= self._name_spaces_max
        for memory in self._by_name_space.values():
            assert memory.store.size <= 2 * memory.store.generation_max + 32
            memory.successors.check()


class StoreSource(DraftSource):
    """A sequence's view of its name space's finished outputs."""

    __slots__ = ("_noise", "_store", "_text")

    def __init__(self, number: int, text: SequenceText, store: Store, noise: SequenceNoise) -> None:
        super().__init__(number)
        self._text = text
        self._store = store
        self._noise = noise

    def propose(self, tree: DraftTree, depth_max: int) -> None:
        """Let the younger generation that knows the text's end vote."""
        tail = self._text.tail()
        for generation in self._store.generations:
            matches = generation.matches(tail, False)
            if matches:
                ballot = Ballot(self._noise, self._text.length, generation.tokens, self._number)
                grow(tree, ballot, matches, depth_max)
                return
