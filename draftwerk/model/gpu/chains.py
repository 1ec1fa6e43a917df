"""A draft model's chains on the device: forward, choice, and on with it; no way back between.

chosen token --follow--> token, position, slot of the next step --forward--> logits --settle--> ...

One step is one graph for each count of rows; a chain of n tokens replays it n - 1 times.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from draftwerk.model.batch.batch import Batch, Facts, Pages
from draftwerk.model.draft_head.chains import LENGTH_MAX, Wanted
from draftwerk.model.gpu.forward import GpuForward
from draftwerk.model.gpu.graphs import Recorder
from draftwerk.model.gpu.kernels.launch import ceil_div, launch, power_of_two
from draftwerk.model.gpu.sampler import (
    WORDS,
    ChoiceKind,
    DeviceRequests,
    is_served,
    packed_requests,
    queue_choice,
    unpacked_requests,
)
from draftwerk.model.gpu.truncated import is_truncated
from draftwerk.model.reference.transfer import to_device, to_host
from draftwerk.speculative.protocol.frames import OnProgress

BROKEN = -1
"""In place of a token where the logits are not finite."""


@triton.jit
def follow_kernel(
    chosen,
    left,
    tables,
    keys,
    tokens,
    positions,
    slots,
    lengths,
    found,
    rows,
    vocab,
    width,
    PAGE: tl.constexpr,
    LENGTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Note every row's token; lay out the step that feeds it, unless it was the last."""
    row = tl.arange(0, BLOCK)
    mine = row < rows
    count = tl.load(left + row, mask=mine, other=0)
    token = tl.load(chosen + row, mask=mine & (count > 0), other=0)
    position = tl.load(keys + row * 4 + 2, mask=mine, other=0).to(tl.int32)
    sound = (token >= 0) & (token < vocab)
    # From the back, so that the count need not be known.
    tl.store(found + row * LENGTH + count - 1, tl.where(sound, token, -1), mask=mine & (count > 0))
    goes_on = (count > 1) & sound
    page = tl.load(tables + row * width + position // PAGE, mask=mine & goes_on, other=0)
    tl.store(tokens + row, tl.where(goes_on, token, 0), mask=mine)
    tl.store(positions + row, tl.where(goes_on, position, 0), mask=mine)
    tl.store(slots + row, tl.where(goes_on, page * PAGE + position % PAGE, -1), mask=mine)
    tl.store(lengths + row, tl.where(goes_on, position + 1, 0), mask=mine)
    tl.store(left + row, tl.where(goes_on, count - 1, 0), mask=mine)
    tl.store(keys + row * 4 + 2, (position + 1).to(tl.int64), mask=mine)


class State:
    """The buffers of so many rows: what is sent, what a step leaves for the next, what is found."""

    def __init__(self, rows: int, width: int, device: torch.device, facts: Facts) -> None:
        """Block tables are `width` wide."""
        self.rows, self.width = rows, width

        def numbers(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.int32, device=device)

        self.sent = torch.zeros(self._size(), dtype=torch.int64, device=device)
        self.asked = unpacked_requests(self.sent[: WORDS * rows])
        left, tables = self.sent[WORDS * rows :].split([rows, self._size() - WORDS * rows - rows])
        self.left = left.view(torch.int32)[:rows]
        self.tables = tables.view(torch.int32)[: rows * width].view(rows, width)
        self.every = torch.arange(rows, device=device)
        self.found = numbers(rows, LENGTH_MAX)
        """A row's tokens, the last one first."""
        self.batch = Batch(
            tokens=numbers(rows),
            positions=numbers(rows),
            slots=numbers(rows) - 1,
            row_starts=torch.arange(rows + 1, dtype=torch.int32, device=device),
            kv_lengths=numbers(rows),
            block_tables=self.tables,
            ancestors=torch.full((rows,), -1, dtype=torch.int64, device=device),
            outputs=self.every.int(),
            facts=facts,
        )

    def _size(self) -> int:
        """Return how many words of eight bytes are sent; tables hold two numbers each."""
        return WORDS * self.rows + self.rows + ceil_div(self.rows * self.width, 2)

    def send(self, wanted: Sequence[Wanted]) -> None:
        """Queue one copy; rows beyond the requested ones hold nothing."""
        host = np.zeros(self._size(), np.int64)
        asked, rest = WORDS * self.rows, (WORDS + 1) * self.rows
        host[:asked] = packed_requests([one.request for one in wanted], self.rows)
        host[asked:rest].view(np.int32)[: len(wanted)] = [one.length for one in wanted]
        tables = host[rest:].view(np.int32)[: self.rows * self.width]
        for row, one in zip(tables.reshape(self.rows, self.width), wanted, strict=False):
            blocks = one.blocks[: self.width]
            row[: len(blocks)] = blocks
        self.sent.copy_(to_device(torch.from_numpy(host), self.sent.device))


def follow(state: State, chosen: Tensor, vocab: int, page: int) -> None:
    """Take the tokens chosen, int32 [rows]: note them, and lay out the step that feeds them."""
    batch, block = state.batch, power_of_two(state.rows)
    launch(
        follow_kernel,
        (1,),
        chosen,
        state.left,
        state.tables,
        state.asked.keys,
        batch.tokens,
        batch.positions,
        batch.slots,
        batch.kv_lengths,
        state.found,
        state.rows,
        vocab,
        state.width,
        PAGE=page,
        LENGTH=LENGTH_MAX,
        BLOCK=block,
        # A thread a row: one that only repeats another's reads could come after its writes.
        num_warps=max(1, block // 32),
    )


class GpuChains:
    """`model.draft_head.chains.ChainDrafter` over pages of the draft model's own."""

    def __init__(
        self,
        forward: GpuForward,
        pages: Pages,
        context_max: int,
        rows: Iterable[int],
        masked: bool,
        recorder: Recorder | None,
        progress: OnProgress = lambda _: None,
    ) -> None:
        """Record a step of each of these counts of rows, with masks if verify rounds have them.

        Rows have at most `context_max` slots.
        """
        self.forward, self.pages = forward, pages
        self.vocab = len(forward.embedding)
        self.facts = Facts(1, context_max + 1, masked)
        self.width = ceil_div(context_max + 1, pages.block_size)
        self.rows_max = max(rows)
        self.recorded: dict[int, tuple[State, Callable[[], Tensor]]] = {}
        counts = sorted(rows, reverse=True) if recorder is not None else []
        for count in counts:
            progress(f"recording chains of {count} rows")
            state = self._state(count)
            assert recorder is not None
            self.recorded[count] = state, recorder.record(lambda state=state: self._step(state))

    def serves(self, wanted: Wanted) -> bool:
        """Whether the kernels implement the distribution, and the buffers hold the chain."""
        slots = wanted.request.position + wanted.length
        fits = wanted.length <= LENGTH_MAX and slots <= self.width * self.pages.block_size
        # What only some of a chain's tokens might need is asked token by token.
        return fits and is_served(wanted.request) and not is_truncated(wanted.request)

    @torch.inference_mode()
    def begin(self, logits: Tensor, wanted: Sequence[Wanted]) -> Callable[[], list[list[int]]]:
        """Queue the chains that follow these logits; return what awaits their tokens."""
        parts = [wanted[at : at + self.rows_max] for at in range(0, len(wanted), self.rows_max)]
        found = [self._queued(logits, part) for part in parts]

        def tokens() -> list[list[int]]:
            rows = chain.from_iterable(to_host(part).tolist() for part in found)
            return [_cut(row[: one.length]) for one, row in zip(wanted, rows, strict=True)]

        return tokens

    def _queued(self, logits: Tensor, wanted: Sequence[Wanted]) -> Tensor:
        count = len(wanted)
        state, step = self._recorded(count)
        state.send(wanted)
        first = DeviceRequests(*(part[:count] for part in state.asked))
        kind = ChoiceKind(not all(one.request.is_greedy for one in wanted))
        follow(state, queue_choice(logits, first, kind), self.vocab, self.pages.block_size)
        for _ in range(max(one.length for one in wanted) - 1):
            step()
        # The buffer may be written again before this is awaited.
        return state.found[:count].clone()

    def _recorded(self, count: int) -> tuple[State, Callable[[], Tensor]]:
        fitting = [rows for rows in self.recorded if rows >= count]
        if fitting:
            return self.recorded[min(fitting)]
        state = self._state(count)
        return state, lambda: self._step(state)

    def _state(self, rows: int) -> State:
        return State(rows, self.width, self.forward.device, self.facts)

    @torch.inference_mode()
    def _step(self, state: State) -> Tensor:
        """Feed what was laid out and follow what is chosen; return where the tokens are."""
        logits = self.forward.compute(state.batch, self.pages)
        asked = DeviceRequests(state.every, state.asked.keys, state.asked.params)
        follow(state, queue_choice(logits, asked, ChoiceKind()), self.vocab, self.pages.block_size)
        return state.found


def _cut(backwards: list[int]) -> list[int]:
    """Return a row's tokens in their order, up to where logits were not finite."""
    tokens = backwards[::-1]
    return tokens[: tokens.index(BROKEN)] if BROKEN in tokens else tokens
