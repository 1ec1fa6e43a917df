"""Verify rounds as CUDA graphs: recorded at the start, one for each (rows, length), then replayed.

A round is padded to the next bucket and its inputs are copied into the buffers that the graph was
recorded with. What fits no bucket, such as a prefill chunk, runs kernel by kernel.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from draftwerk.model.batch.batch import Batch, Facts, Pages, facts_of
from draftwerk.model.gpu.forward import GpuForward
from draftwerk.model.gpu.inputs import Inputs, padding
from draftwerk.speculative.protocol.frames import OnProgress

ROWS = (1, 2, 4, 8, 16, 32, 64, 128)
LENGTHS = (1, 2, 4, 8, 16)
"""New tokens of a row: the known token and its drafts."""
TOKENS_MAX = 512
"""The most tokens of a bucket: beyond it launching kernels costs little beside running them."""
FREE_TOKENS = 128
"""Padding up to this many tokens costs nothing: reading the weights takes as long."""
PADDING_MAX = 2.0
"""Beyond that, most tokens of a bucket for each real one."""
WARM_UPS = 2


class Recorder(Protocol):
    """Turns work on fixed buffers into something that repeats it."""

    def record(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Do the work; return a function that does it again and returns where the result is."""
        ...


class CudaRecorder:
    """CUDA graphs that share one pool of memory, since only one runs at a time."""

    def __init__(self) -> None:
        self.pool = torch.cuda.graph_pool_handle()

    def record(self, work: Callable[[], Tensor]) -> Callable[[], Tensor]:
        """Warm up on a side stream, as capturing demands, then capture."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UPS):
                work()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.pool):
            result = work()

        def replay() -> Tensor:
            graph.replay()
            return result

        return replay


class Bucket(NamedTuple):
    """Which rounds a graph serves."""

    rows: int
    length: int
    masked: bool
    """Whether with ancestor masks; one that has them serves chains as well."""


class Recorded(NamedTuple):
    """A graph and the buffers it reads."""

    inputs: Inputs
    replay: Callable[[], Tensor]


def row_counts(rows_max: int) -> list[int]:
    """Return the counts of rows for which graphs are recorded."""
    rows = [count for count in ROWS if count < rows_max]
    return [*rows, next((count for count in ROWS if count >= rows_max), ROWS[-1])]


def buckets(rows_max: int, masks: Iterable[bool]) -> list[Bucket]:
    """Return all buckets up to `rows_max` rows, largest first, so that the pool grows once."""
    kinds = list(masks)
    every = [
        Bucket(count, length, masked)
        for count in row_counts(rows_max)
        for length in LENGTHS
        for masked in kinds
        if count * length <= TOKENS_MAX and not (masked and length == 1 and False in kinds)
    ]
    return sorted(every, key=lambda bucket: (-bucket.rows * bucket.length, bucket))


class GraphedForward:
    """A `Forward` that replays where it can; its pages and batches are those it was made for."""

    def __init__(
        self,
        forward: GpuForward,
        pages: Pages,
        context_max: int,
        which: list[Bucket],
        recorder: Recorder,
        progress: OnProgress = lambda _: None,
    ) -> None:
        """Record every bucket; rows have at most `context_max` slots."""
        self.forward = forward
        self.pages = pages
        self.states: Tensor | None = None
        """The states that the head read in the latest call, [S, hidden]."""
        # One for all graphs, and outside their memory, which the next one writes again.
        tokens = max(bucket.rows * bucket.length for bucket in which)
        width, dtype = forward.embedding.shape[1], forward.embedding.dtype
        self.kept = torch.zeros(tokens, width, dtype=dtype, device=forward.device)
        self.recorded: dict[Bucket, Recorded] = {}
        for index, bucket in enumerate(which, start=1):
            if index % 10 == 1 or index == len(which):
                progress(f"recording CUDA graphs: {index} of {len(which)}")
            self.recorded[bucket] = self._record(bucket, context_max, recorder)

    def _record(self, bucket: Bucket, context_max: int, recorder: Recorder) -> Recorded:
        kv_max = context_max + bucket.length
        width = -(-kv_max // self.pages.block_size)
        facts = Facts(bucket.length, kv_max, bucket.masked)
        inputs = padding([bucket.length] * bucket.rows, width, self.forward.device, facts)
        batch = inputs.send()
        return Recorded(inputs, recorder.record(lambda: self._compute(batch)))

    @torch.inference_mode()
    def _compute(self, batch: Batch) -> Tensor:
        logits = self.forward.compute(batch, self.pages)
        assert self.forward.states is not None
        self.kept[: len(logits)] = self.forward.states
        return logits

    @torch.inference_mode()
    def __call__(self, batch: Batch, pages: Pages) -> Tensor:
        """Return float32 logits [S, vocab]; they hold until the next call."""
        bucket = self.bucket_of(batch)
        if bucket is None or pages is not self.pages:
            logits = self.forward(batch, pages)
            self.states = self.forward.states
            return logits
        inputs, replay = self.recorded[bucket]
        inputs.fill_padded(batch, bucket.length)
        inputs.send()
        self.states = self.kept[: len(batch.outputs)]
        return replay()[: len(batch.outputs)]

    def bucket_of(self, batch: Batch) -> Bucket | None:
        """Return the smallest bucket that holds the batch without too much padding."""
        facts, rows, tokens = facts_of(batch), len(batch.kv_lengths), len(batch.tokens)
        width = batch.block_tables.shape[1]
        fitting = [
            bucket
            for bucket, (inputs, _) in self.recorded.items()
            if bucket.rows >= rows
            and bucket.length >= facts.row_max
            and bucket.masked >= facts.masked
            and inputs.shape.width >= width
        ]
        if not fitting:
            return None
        best = min(fitting, key=lambda bucket: (bucket.rows * bucket.length, bucket))
        padded = best.rows * best.length
        return best if padded <= max(FREE_TOKENS, PADDING_MAX * tokens) else None
