"""One round as tensors: what `forward` reads."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from draftwerk.cache.kinds.window_table import NO_WINDOW_BLOCKS, WindowBlocks
from draftwerk.model.batch.added_rows import AddedRows


@dataclass(slots=True)
class Pages:
    """The KV cache's tensors: keys and values [planes, blocks, block_size, kv_heads, head_size].

    A layer that attends has one plane.
    """

    keys: Tensor
    values: Tensor
    states: Tensor | None = None
    """Slots of recurrent states, [slots, numbers] in float32; None without recurrent layers."""
    window: "Pages | None" = None
    """Pages of layers with windows that have blocks of their own; these are the others' then."""
    window_blocks: WindowBlocks = NO_WINDOW_BLOCKS
    """Which of these blocks a row reads."""
    block_count: int = field(init=False)
    block_size: int = field(init=False)
    """A tensor's shape takes longer to look up, and every row asks for it."""

    def __post_init__(self) -> None:
        self.block_count, self.block_size = self.keys.shape[1:3]

    @property
    def window_first(self) -> int:
        """The first id of the blocks of layers with windows; 0 where all layers share theirs."""
        return 0 if self.window is None else self.keys.shape[1]


@dataclass(frozen=True, slots=True)
class BatchState:
    """One sequence's tokens in a batch, and the slots of its recurrent state.

    tokens   first ... first + count   known, from position `start` on; then a node for each parent
    """

    first: int
    count: int
    parents: tuple[int, ...]
    """The parents of a draft tree's nodes, by index; -1 for the last known token."""
    start: int
    source: int
    """The slot that is read; -1 for the state before the first token."""
    target: int
    """The slot that is written; -1 for none."""
    saves: tuple[tuple[int, int], ...] = ()
    """(position, slot) that are written where the sequence comes to the position."""


@dataclass(slots=True)
class Batch:
    """A round of T tokens in R rows; int32 tensors on the model's device unless stated otherwise.

        row r owns the new tokens   row_starts[r] .. row_starts[r + 1]
        it sees the slots           0 .. kv_lengths[r]   of its block table, its new tokens last
        so its committed prefix is  kv_lengths[r] - (row_starts[r + 1] - row_starts[r]) long

    New token i of a row is in slot `prefix + i`. It sees the whole prefix and, of the row's own
    new tokens, those named by `ancestors`: bit j (int64) for new token j, itself included; -1 means
    plain causal order (every j <= i), which prefill chunks of any length use. Masked rows have at
    most 63 new tokens.
    """

    tokens: Tensor
    """[T] token ids."""
    positions: Tensor
    """[T] rope positions, of a tree's nodes prefix + depth; or [T, pairs], one for each pair."""
    slots: Tensor
    """[T] where K and V go: block * block_size + offset, in the flattened (block, offset) axis."""
    row_starts: Tensor
    """[R + 1] ("cu_seqlens_q")."""
    kv_lengths: Tensor
    """[R] ("seqused_k")."""
    block_tables: Tensor
    """[R, width], padded with 0."""
    ancestors: Tensor
    """[T] int64."""
    outputs: Tensor
    """[S] tokens whose states are computed, each once: ascending those with logits, then others."""
    facts: "Facts | None" = None
    """Facts about the tensors, on the host; reading them from a GPU would stop the queue."""
    seen: Tensor | None = None
    """[T] of a token in causal order, how many slots of its row it sees, ascending within the row;
    None means `prefix + i + 1` of new token i."""
    both_ways: bool = False
    """Whether windows have as many positions behind a token as before it."""
    adapters: Tensor | None = None
    """[R] the number of each row's adapter, -1 for none; None where no row has one."""
    logit_count: int | None = None
    """How many of the outputs have logits; None means all."""
    layers: int | None = None
    """Layers to run; fewer than all compute no logits, and of the last keys and values alone."""
    states: tuple[BatchState, ...] = ()
    """The state of each sequence, in the order of tokens."""
    paths: Tensor | None = None
    """[T, 64] the new tokens of each path, sorted once for the layers of an attention in order."""
    added: AddedRows | None = None
    window: "Batch | None" = None
    """The same with slots and tables of `Pages.window`, any block for one behind the windows."""


@dataclass(frozen=True, slots=True)
class Facts:
    """Bounds on a batch; a padded batch has larger ones."""

    row_max: int
    """New tokens of the longest row."""
    kv_max: int
    """Slots that the longest row sees."""
    masked: bool
    """Whether some row has ancestor masks."""


def facts_of(batch: Batch) -> Facts:
    """Return the batch's own facts, or read them off the tensors."""
    return batch.facts or Facts(
        int(batch.row_starts.diff().max()),
        int(batch.kv_lengths.max()),
        bool((batch.ancestors != -1).any()),
    )


def logit_count_of(batch: Batch) -> int:
    """Return how many of the batch's outputs have logits."""
    return batch.outputs.shape[0] if batch.logit_count is None else batch.logit_count


class Forward(Protocol):
    """A model bound to its weights: writes the batch's K and V into the pages, returns logits."""

    def __call__(self, batch: Batch, pages: Pages) -> Tensor:
        """Return float32 logits [S, vocab], at least of the outputs that have some."""
        ...


class RecurrentForward(Forward, Protocol):
    """A `Forward` with recurrent layers."""

    def advance(self, rows: Sequence[tuple[BatchState, Sequence[int]]], pages: Pages) -> None:
        """Take states of the latest batch along the nodes that were accepted."""
        ...


class HeldStates(Protocol):
    """The states that a draft head reads of its target."""

    @property
    def states(self) -> Tensor | None:
        """The states of the outputs of the latest call [S, width], in any dtype; the hidden states
        that the target's head read, or several layers' side by side."""
        ...


class StatesForward(Forward, HeldStates, Protocol):
    """A `Forward` that serves a draft head as well."""


class KeepingForward(Protocol):
    """A `Forward` that keeps hidden states on the way."""

    kept_layers: tuple[int, ...]
    """Before which layers, ascending."""

    @property
    def kept(self) -> Tensor | None:
        """The kept states of the outputs of the latest call, side by side [S, layers * hidden]."""
        ...
