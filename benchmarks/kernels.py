"""Steps of the native forward pass at the default model's shape, and their times, in turns."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from time import perf_counter

import torch

from draftwerk.machine.shared_memory import SharedMemory
from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.loader import Checkpoint
from draftwerk.model.checkpoint.packed_weights import WeightStore
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.model.reference.kv_pages import allocate

KV_LENGTH = 260


def ints(values: Iterable[int]) -> torch.Tensor:
    return torch.tensor(list(values), dtype=torch.int32)


def one_row(tokens: int, kv_length: int, outputs: int) -> Batch:
    """Return a batch of one row that ends its sequence; logits of its last `outputs` tokens."""
    places = ints(range(kv_length - tokens, kv_length))
    return Batch(
        tokens=ints(range(tokens)),
        positions=places,
        slots=places.clone(),
        row_starts=ints([0, tokens]),
        kv_lengths=ints([kv_length]),
        block_tables=ints(range(-(-kv_length // 16)))[None],
        ancestors=torch.full((tokens,), -1),
        outputs=ints(range(tokens - outputs, tokens)),
    )


def many_rows(rows: int, kv_length: int) -> Batch:
    """Return a batch of rows with blocks of their own, each of which decodes one token."""
    blocks = -(-kv_length // 16)
    last = kv_length - 1
    return Batch(
        tokens=ints(range(rows)),
        positions=ints([last] * rows),
        slots=ints(row * blocks * 16 + last for row in range(rows)),
        row_starts=ints(range(rows + 1)),
        kv_lengths=ints([kv_length] * rows),
        block_tables=ints(range(rows * blocks)).view(rows, blocks),
        ancestors=torch.full((rows,), -1),
        outputs=ints(range(rows)),
    )


def as_served(model: Checkpoint, dtype: str, pool: Pool) -> NativeForward:
    """Return the native model, its weights in one piece of memory as a server has them.

    There they have huge pages: without, reading a small matrix takes up to 1.5 times as long.
    """
    store = WeightStore(SharedMemory.make(0).descriptor, bytes(32))
    return NativeForward(model.config, model.weights, dtype, pool, store=store)


def pages_for(config: ModelConfig, model: NativeForward, blocks: int = 1024) -> Pages:
    cpu = torch.device("cpu")
    return allocate(config, blocks, 16, model.page_dtype, cpu, model.page_width)


def times_in_turn(
    runs: Sequence[Callable[[], object]],
    rounds: int,
    clock: Callable[[], float] = perf_counter,
) -> list[list[float]]:
    """Time all runs in turns, every other round the other way round; return the milliseconds."""
    times: list[list[float]] = [[] for _ in runs]
    for number in range(rounds):
        for index in range(len(runs))[:: -1 if number % 2 else 1]:
            begun = clock()
            runs[index]()
            times[index].append((clock() - begun) * 1e3)
    return times


def interleaved(runs: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Time all runs in turns, `rounds` times; return the median milliseconds of each."""
    return [*map(median, times_in_turn(runs, rounds))]
