"""What is asked of a round's logits before any row is walked, so that a device is awaited once.

A walk asks one node after another. Where answers have a long way, as from a GPU, every node that
the walk could come to is asked at once and the walk finds its answers here. That needs questions
that do not depend on the tokens before them: no penalties, no grammar.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import NamedTuple, Protocol

from torch import Tensor

from draftwerk.model.reference.sampler import SamplingRequest, TopTokens
from draftwerk.speculative.rounds import Draft
from draftwerk.speculative.row_parts.feedback import HeadNode
from draftwerk.speculative.sampling import Sampling


class PackedTree(NamedTuple):
    """One row's draft, as far as its answers decide what becomes of it."""

    first: int
    """The row of logits after the last known token; the nodes' follow it."""
    parents: tuple[int, ...]
    """As in `Draft`."""
    tokens: tuple[int, ...]
    slots: list[int]
    """Where each node's keys and values are, in the flattened (block, offset) axis."""
    stop: int
    """Tokens known."""
    sampling: Sampling
    wants_head_tree: bool
    """Whether a draft head, if there is one, is to think on from where the walk ends."""

    @property
    def is_chain(self) -> bool:
        """Whether an accepted path is in place as it is."""
        return self.parents == tuple(range(-1, len(self.parents) - 1))


class RoundRequests(NamedTuple):
    """What a round may want to know of its logits; each to be gone through once, or not at all."""

    requests: Iterable[SamplingRequest]
    """For tokens, at nodes that may never be reached."""
    topk_rows: Iterable[int] = ()
    """Rows of logits whose best tokens are wanted."""
    best_count: int = 0
    """How many of them."""
    trees: Iterable[PackedTree] = ()
    """What the asks belong to; all asks of one tree follow each other, from its root on."""
    drafts: Sequence[tuple[SamplingRequest, Draft]] = ()
    """The same as drafts, each with the request at its root, for what follows them itself."""


@dataclass(frozen=True, slots=True)
class Presampled:
    """What is known of a round's logits, by their row."""

    broken: frozenset[int]
    """Rows whose logits are not finite."""
    tokens: Mapping[int, int] = field(default_factory=dict[int, int])
    """The seeded target's; a row that is missing must be asked later."""
    best: Mapping[int, TopTokens] = field(default_factory=dict[int, TopTokens])
    moved: frozenset[int] = frozenset()
    """Trees, by their first row, whose accepted path is in place already."""
    head_tree: Mapping[int, tuple[HeadNode, ...]] = field(
        default_factory=dict[int, tuple[HeadNode, ...]]
    )
    """A draft head's, by the same; meant for texts that go on."""


NOTHING_PRESAMPLED = Presampled(frozenset())


class Presample(Protocol):
    """Sample before the tree walk what costs little to sample in one launch.

    Rows whose logits are not finite are found in any case.
    """

    def __call__(self, logits: Tensor, questions: RoundRequests, /) -> Presampled: ...


def check_finite_only(logits: Tensor, questions: RoundRequests) -> Presampled:
    """Answer nothing beforehand: where answers are near, asking for every node is a waste."""
    # A node's hidden state is a factor of all its logits: where it is broken, so is every one.
    first = logits[:, 0].tolist()  # one operation of torch, not five
    return Presampled(frozenset(row for row, value in enumerate(first) if not isfinite(value)))
