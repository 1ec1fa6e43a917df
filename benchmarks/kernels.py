"""How far a native forward pass is from what the machine allows.

Run as `python -m benchmarks.kernels`.

The floor of a step is the longer of two measured times: streaming every packed weight once, and
doing its multiply-adds in registers. All measurements of a line are interleaved, so that a busy
machine slows them alike; times are medians in milliseconds.
"""

import argparse
from collections.abc import Callable, Iterable
from statistics import quantiles
from time import perf_counter
from typing import NamedTuple

import torch

from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.weights import LayerWeights, Weights
from draftwerk.model.native.calls.native_shape import FORMATS
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.library import library
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.sampler import NativeSampler
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.model.reference.sampler import SamplingRequest
from draftwerk.speculative.sampling.params import Sampling

KV_LENGTH = 260
TOKENS = (1, 2, 4, 8, 16, 32, 64, 256, 512)
ROWS = (1, 4, 16, 48)
PEAK_STEPS = 50_000
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "temperature 1": Sampling(),
    "temperature 0.8, top-p 0.95": Sampling(temperature=0.8, top_p=0.95),
    "temperature 0.8, top-k 50": Sampling(temperature=0.8, top_k=50),
    "min-p 0.05": Sampling(min_p=0.05),
}


def default_shape() -> ModelConfig:
    """Return the shape of SmolLM2-135M."""
    return ModelConfig(
        architecture="LlamaForCausalLM",
        vocab_size=49152,
        hidden_size=576,
        layer_count=30,
        num_heads=9,
        num_kv_heads=3,
        head_size=64,
        ffn_size=1536,
        context_max=8192,
        norm_eps=1e-5,
        rope_inverse_frequencies=tuple(100_000.0 ** (-i / 32) for i in range(32)),
        tied_embeddings=True,
    )


def random_weights(config: ModelConfig) -> Weights:
    """Return bf16 weights that keep activations of ordinary size."""

    def matrix(rows: int, columns: int) -> torch.Tensor:
        return (torch.randn(rows, columns) * columns**-0.5).bfloat16()

    hidden, ffn = config.hidden_size, config.ffn_size
    attended = config.num_heads * config.head_size
    qkv = attended + 2 * config.num_kv_heads * config.head_size
    ones = torch.ones(hidden, dtype=torch.bfloat16)
    embedding = matrix(config.vocab_size, hidden)
    layers = [
        LayerWeights(
            attention_norm=ones,
            qkv=matrix(qkv, hidden),
            output=matrix(hidden, attended),
            ffn_norm=ones,
            gate_up=matrix(2 * ffn, hidden),
            down=matrix(hidden, ffn),
        )
        for _ in range(config.layer_count)
    ]
    return Weights(embedding, layers, ones, embedding)


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


def pages_for(config: ModelConfig, model: NativeForward) -> Pages:
    return allocate(config, 1024, 16, model.page_dtype, torch.device("cpu"), model.page_width)


def interleaved(runs: list[Callable[[], object]], rounds: int) -> list[list[float]]:
    """Time all runs in turns, `rounds` times; return the sorted milliseconds of each."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, taken in zip(runs, times, strict=True):
            begun = perf_counter()
            run()
            taken.append((perf_counter() - begun) * 1e3)
    return [sorted(taken) for taken in times]


def spread(times: list[float]) -> tuple[float, float, float]:
    """Return the median, and the 10th and 90th percentile."""
    tenths = quantiles(times, n=10)
    return tenths[4], tenths[0], tenths[8]


class Line(NamedTuple):
    """A line of the table: what steps of one size take, as medians in milliseconds."""

    tokens: int
    step: tuple[float, float, float]
    """Median, 10th and 90th percentile."""
    linears: float
    """The matrix products alone."""
    memory: float
    """Streaming every weight once."""
    arithmetic: float
    """The multiply-adds of the products, in registers."""

    @property
    def floor(self) -> float:
        return max(self.memory, self.arithmetic)

    def ratios(self) -> tuple[float, float, float]:
        """Return products over floor, step over products, step over floor."""
        step = self.step[0]
        return self.linears / self.floor, step / self.linears, step / self.floor

    def __str__(self) -> str:
        times = (*self.step, self.linears, self.memory, self.arithmetic)
        return (
            f"{self.tokens:4d} {' '.join(f'{ms:8.2f}' for ms in times)} "
            f"{' '.join(f'{ratio:7.2f}' for ratio in self.ratios())}"
            f" {self.tokens / self.step[0] * 1e3:8.0f}"
        )


class Decoding(NamedTuple):
    """One step of rows that decode a token each: all of them have keys to read."""

    rows: int
    step: float
    """Median milliseconds."""
    linears: float
    read: float
    """Keys and values, in megabytes."""

    def __str__(self) -> str:
        rate = self.read / (self.step - self.linears)
        return f"{self.rows:4d} {self.step:8.2f} {self.linears:8.2f} {self.read:8.0f} {rate:8.1f}"


DECODING_TITLE = "rows     step  linears    KV MB   KV / (step - linears), GB/s"
TITLE = (
    "   T     step      p10      p90  linears   memory    arith  lin/fl step/lin step/fl    tok/s"
)


class Bench:
    """One format of the default model's shape."""

    def __init__(self, dtype: str, pool: Pool) -> None:
        self.config = default_shape()
        self.pool = pool
        self.model = NativeForward(self.config, random_weights(self.config), dtype, pool)
        self.pages = pages_for(self.config, self.model)
        self.bytes = library().measure_stream(self.model.handle)
        self.macs = library().measure_multiply_adds(pool.handle, self.model.format, PEAK_STEPS)

    def line(self, tokens: int) -> Line:
        """Measure one step of `tokens` tokens."""
        kv_length = max(KV_LENGTH, tokens)
        outputs = tokens if tokens <= 64 else 1
        batch = one_row(tokens, kv_length, outputs)
        native, handle = library(), self.model.handle
        runs: list[Callable[[], object]] = [
            lambda: self.model(batch, self.pages),
            lambda: native.measure_linears(handle, tokens, outputs),
            lambda: native.measure_stream(handle),
            self._peak,
        ]
        interleaved(runs, 2)
        whole, linears, stream, peak = interleaved(runs, 40 if tokens <= 64 else 12)
        arithmetic = self._multiply_adds(tokens, outputs) / self.macs * spread(peak)[0]
        return Line(tokens, spread(whole), spread(linears)[0], spread(stream)[0], arithmetic)

    def _multiply_adds(self, tokens: int, outputs: int) -> int:
        config = self.config
        attended = config.num_heads * config.head_size
        qkv = attended + 2 * config.num_kv_heads * config.head_size
        layer = config.hidden_size * (qkv + attended + 3 * config.ffn_size)
        head = config.hidden_size * config.vocab_size
        return tokens * config.layer_count * layer + outputs * head

    def report(self) -> None:
        (peak,) = interleaved([self._peak], 9)
        (stream,) = interleaved([lambda: library().measure_stream(self.model.handle)], 9)
        rate, bandwidth = self.macs / spread(peak)[0] / 1e6, self.bytes / spread(stream)[0] / 1e6
        print(f"{self.bytes / 1e6:.0f} MB, {bandwidth:.1f} GB/s, {rate:.0f} GMAC/s")
        print(TITLE)
        for tokens in TOKENS:
            print(self.line(tokens), flush=True)
        print(DECODING_TITLE)
        for rows in ROWS:
            print(self.decoding(rows), flush=True)

    def decoding(self, rows: int) -> Decoding:
        """Measure one such step."""
        batch = many_rows(rows, KV_LENGTH)
        runs: list[Callable[[], object]] = [
            lambda: self.model(batch, self.pages),
            lambda: library().measure_linears(self.model.handle, rows, rows),
        ]
        interleaved(runs, 2)
        step, linears = (spread(times)[0] for times in interleaved(runs, 30))
        layers, _, _, kv_heads, width = self.pages.keys.shape
        size = 2 * layers * kv_heads * width * self.pages.keys.element_size()
        return Decoding(rows, step, linears, rows * KV_LENGTH * size / 1e6)

    def _peak(self) -> None:
        library().measure_multiply_adds(self.pool.handle, self.model.format, PEAK_STEPS)


def report_sampler(pool: Pool, rows: int = 16) -> None:
    """Print microseconds a row; the logits fall off as a language model's do."""
    ranks = torch.arange(1, 49153).float()
    falling = 20 - 2.2 * ranks.log()
    logits = torch.stack([falling[torch.randperm(49152)] + torch.randn(49152) for _ in range(rows)])
    sampler = NativeSampler(pool)
    print("sampler, microseconds a row of 49152: one row, then 16 at once")
    for name, sampling in SAMPLINGS.items():
        requests = [SamplingRequest(row, 100 + row, sampling) for row in range(rows)]

        def one(requests: list[SamplingRequest] = requests) -> None:
            for request in requests:
                sampler.choose_many(logits, [request])

        def many(requests: list[SamplingRequest] = requests) -> None:
            sampler.choose_many(logits, requests)

        alone, together = interleaved([one, many], 50)
        print(
            f"  {name:30s} {spread(alone)[0] / rows * 1e3:7.1f}"
            f" {spread(together)[0] / rows * 1e3:7.1f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dtypes", default="bf16,int8,int4,fp32")
    parser.add_argument("--threads", type=int, default=None)
    arguments = parser.parse_args()
    pool = Pool(arguments.threads)
    for dtype in arguments.dtypes.split(","):
        if dtype not in FORMATS:
            parser.error(f"{dtype!r} is none of {', '.join(FORMATS)}")
        print(f"\n{dtype}, {pool.threads} threads, KV {KV_LENGTH}; ms", end=": ")
        Bench(dtype, pool).report()
    print()
    report_sampler(pool)


if __name__ == "__main__":
    main()
