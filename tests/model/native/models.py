"""Small random models of odd shapes, and rounds for them, without any file."""

from dataclasses import replace

import torch
from torch import Tensor

from draftwerk.cache.kinds.recurrent_states import RowState
from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.weights import LayerWeights, Weights
from draftwerk.model.reference.kv_pages import page_shape
from draftwerk.speculative.rounds import NO_DRAFT, Draft


def tiny_config(**changes) -> ModelConfig:
    head_size = changes.get("head_size", 16)
    settings = {
        "architecture": "LlamaForCausalLM",
        "vocab_size": 101,
        "hidden_size": 64,
        "layer_count": 2,
        "num_heads": 6,
        "num_kv_heads": 2,
        "head_size": head_size,
        "ffn_size": 88,
        "context_max": 512,
        "norm_eps": 1e-5,
        "rope_inverse_frequencies": tuple(
            10_000.0 ** (-2 * i / head_size) for i in range(head_size // 2)
        ),
    }
    return ModelConfig(**settings | changes)


def random_weights(
    config: ModelConfig, dtype: torch.dtype = torch.float32, biases: bool = False, seed: int = 0
) -> Weights:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int, centre: float = 0.0, spread: float = 0.1) -> Tensor:
        return (centre + spread * torch.randn(*shape, generator=generator)).to(dtype)

    def matrix(rows: int, columns: int) -> Tensor:
        return normal(rows, columns, spread=1.5 * columns**-0.5)

    def bias(size: int) -> Tensor | None:
        return normal(size) if biases else None

    def head_norm() -> Tensor | None:
        return normal(config.head_size, centre=1.0) if config.query_key_norm else None

    def layer() -> LayerWeights:
        hidden, ffn = config.hidden_size, config.ffn_size
        attended = config.num_heads * config.head_size
        qkv = attended + 2 * config.num_kv_heads * config.head_size
        return LayerWeights(
            attention_norm=normal(hidden, centre=1.0),
            qkv=matrix(qkv, hidden),
            qkv_bias=bias(qkv),
            query_norm=head_norm(),
            key_norm=head_norm(),
            output=matrix(hidden, attended),
            output_bias=bias(hidden),
            ffn_norm=normal(hidden, centre=1.0),
            gate_up=matrix(2 * ffn, hidden),
            gate_up_bias=bias(2 * ffn),
            down=matrix(hidden, ffn),
            down_bias=bias(hidden),
        )

    embedding = normal(config.vocab_size, config.hidden_size, spread=1.0)
    return Weights(
        embedding=embedding,
        layers=[layer() for _ in range(config.layer_count)],
        norm=normal(config.hidden_size, centre=1.0),
        lm_head=matrix(config.vocab_size, config.hidden_size),
    )


def random_pages(
    config: ModelConfig,
    dtype: torch.dtype,
    block_count: int = 64,
    block_size: int = 16,
    width: int = 0,
) -> Pages:
    """Return pages full of noise: nothing may depend on a slot that was never written."""
    shape = page_shape(config, block_count, block_size, width)
    generator = torch.Generator().manual_seed(9)
    states = (
        (99 * torch.randn(8, config.state_size, generator=generator)) if config.state_size else None
    )
    return Pages(
        (99 * torch.randn(shape, generator=generator)).to(dtype),
        (99 * torch.randn(shape, generator=generator)).to(dtype),
        states,
    )


Part = tuple[list[int], int, tuple[int, ...], Draft, RowState]
"""Known tokens to compute, the position of the first, the block table, drafted nodes, states."""


def part(
    tokens: list[int],
    start: int = 0,
    blocks: tuple[int, ...] = (),
    draft: Draft = NO_DRAFT,
    state: RowState | None = None,
) -> Part:
    """Return a row; of a recurrent model it reads state 0 and writes 1 if none is said."""
    if state is None:
        state = RowState(0 if start else -1, 1)
    return tokens, start, blocks or tuple(range(1, 33)), draft, state


def round_of(parts: list[Part], block_size: int = 16) -> Batch:
    """Return a batch of these rows in which every token's logits are computed."""
    layout = BatchBuilder(block_size)
    for tokens, start, blocks, draft, state in parts:
        layout.add(tokens, start, blocks, draft, samples=True, state=state)
    batch = layout.batch(torch.device("cpu"))
    return replace(batch, outputs=torch.arange(len(batch.tokens), dtype=torch.int32))


def random_tokens(count: int, seed: int = 0, vocab_size: int = 101) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocab_size, (count,), generator=generator).tolist()
