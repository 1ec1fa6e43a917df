"""Steps of the native forward pass at the default model's shape, and their times, in turns."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median
from time import perf_counter

import torch

from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.weights import LayerWeights, Weights
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.reference.kv_pages import allocate

KV_LENGTH = 260


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


def pages_for(config: ModelConfig, model: NativeForward, blocks: int = 1024) -> Pages:
    cpu = torch.device("cpu")
    return allocate(config, blocks, 16, model.page_dtype, cpu, model.page_width)


def interleaved(runs: Sequence[Callable[[], object]], rounds: int) -> list[float]:
    """Time all runs in turns, `rounds` times; return the median milliseconds of each."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(rounds):
        for run, taken in zip(runs, times, strict=True):
            begun = perf_counter()
            run()
            taken.append((perf_counter() - begun) * 1e3)
    return [*map(median, times)]
