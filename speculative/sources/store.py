"""Finished outputs of the same tenant as a draft source.

Only committed text, only within one tenant, and bounded: each tenant has an old and a young
generation, and a full young one takes the place of the old.
"""

from collections import OrderedDict
from collections.abc import Sequence

from draftwerk.speculative.sources.acceptance import STORE
from draftwerk.speculative.sources.ngram_index import GAP, Occurrences, SequenceText
from draftwerk.speculative.sources.recycle import Successors
from draftwerk.speculative.sources.sequence_noise import SequenceNoise
from draftwerk.speculative.sources.suffix import Ballot, grow
from draftwerk.speculative.sources.tree import DraftTree

GENERATION_MAX = 16_384
"""Tokens of a tenant's generation; about 80 bytes each."""
TENANTS_MAX = 32
"""Tenants remembered; one with everything full takes about 10 MB."""


class Store:
    """One tenant's finished outputs."""

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

    def propose(
        self, tree: DraftTree, text: SequenceText, noise: SequenceNoise, depth_max: int
    ) -> None:
        """Let the younger generation that knows the text's end vote."""
        tail = text.tail()
        for generation in self.generations:
            matches = generation.matches(tail, False)
            if matches:
                grow(tree, Ballot(noise, text.length, generation.tokens, STORE), matches, depth_max)
                return

    @property
    def size(self) -> int:
        """Return how many tokens are held, padding included."""
        return sum(len(generation.tokens) for generation in self.generations)


class Memory:
    """What outlives a tenant's sequences."""

    __slots__ = ("store", "successors")

    def __init__(self) -> None:
        self.store = Store()
        self.successors = Successors()


class Memories:
    """Every tenant's memory; the least recently used is forgotten first."""

    def __init__(self, tenants_max: int = TENANTS_MAX) -> None:
        self._tenants_max = tenants_max
        self._by_tenant: OrderedDict[str, Memory] = OrderedDict()

    def of(self, tenant: str) -> Memory:
        """Return a tenant's memory, a new one if it has none."""
        memory = self._by_tenant.get(tenant)
        if memory is None:
            memory = self._by_tenant[tenant] = Memory()
            if len(self._by_tenant) > self._tenants_max:
                self._by_tenant.popitem(last=False)
        self._by_tenant.move_to_end(tenant)
        return memory

    def check(self) -> None:
        """Assert every bound."""
        assert len(self._by_tenant) <= self._tenants_max
        for memory in self._by_tenant.values():
            assert memory.store.size <= 2 * memory.store.generation_max + 32
            memory.successors.check()


class StoreSource:
    """A sequence's view of its tenant's finished outputs."""

    __slots__ = ("_noise", "_store", "_text")

    def __init__(self, text: SequenceText, store: Store, noise: SequenceNoise) -> None:
        self._text = text
        self._store = store
        self._noise = noise

    def learn(self, new_token_ids: tuple[int, ...]) -> None:
        """Nothing: the store learns a text when it is closed."""

    def propose(self, tree: DraftTree, depth_max: int) -> None:
        self._store.propose(tree, self._text, self._noise, depth_max)
