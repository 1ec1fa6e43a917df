"""A DFlash drafter bound to its target on a CPU: products in torch, or native."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import linear

from draftwerk.model.batch.batch import KeepingForward
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.dflash_weights import DFlashWeights
from draftwerk.model.checkpoint.weights import LayerWeights, WeightMatrix
from draftwerk.model.draft_head.head_windows import (
    BLOCK_SIZE,
    LONG_BLOCKS,
    LONG_CAPACITY,
    HeadWindows,
)
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import rows_of
from draftwerk.model.process.head_products import embedded, row_product
from draftwerk.model.reference.kv_pages import allocate
from draftwerk.model.reference.rotation import Rotaries
from draftwerk.model.reference.sampler import best_tokens
from draftwerk.model.step.backend import BoundHead
from draftwerk.model.step.layer_heads.block_layers import BlockHead, BlockLayer, BlockStack
from draftwerk.model.step.layer_heads.eagle import KeptStates, RowProduct
from draftwerk.model.step.layer_heads.layer_head import RankTokens
from draftwerk.model.step.layer_heads.mtp import guessed

CPU = torch.device("cpu")
Product = Callable[[Tensor], RowProduct]


def torch_dflash(
    drafter: DFlashWeights,
    target: ModelConfig,
    embedding: Tensor,
    lm_head: Tensor,
    forward: KeepingForward,
) -> BoundHead:
    """Return a drafter in torch."""

    def product(matrix: Tensor) -> RowProduct:
        own = matrix.to(embedding.dtype)
        return lambda rows: linear(rows.to(own.dtype), own).float()

    stack = _stack(drafter, target, embedding, lm_head, product)
    return _bound(drafter, stack, embedding.dtype, best_tokens, forward)


def native_dflash(
    drafter: DFlashWeights,
    target: ModelConfig,
    embedding: WeightMatrix,
    lm_head: WeightMatrix,
    dtype: str,
    pool: Pool,
    rank: RankTokens,
    forward: KeepingForward,
) -> BoundHead:
    """Return a drafter whose products are native, in eight bits but for fp32."""
    product = partial(row_product, dtype=dtype, pool=pool)
    stack = _stack(drafter, target, embedding, lm_head, product)
    page_dtype = torch.float32 if dtype == "fp32" else torch.bfloat16
    return _bound(drafter, stack, page_dtype, rank, forward)


def _bound(
    drafter: DFlashWeights,
    stack: BlockStack,
    page_dtype: torch.dtype,
    rank: RankTokens,
    forward: KeepingForward,
) -> BoundHead:
    pages = allocate(drafter.config, LONG_CAPACITY * LONG_BLOCKS, BLOCK_SIZE, page_dtype, CPU)
    step = BlockHead(stack, pages, rank, HeadWindows(LONG_CAPACITY, LONG_BLOCKS))
    states = KeptStates(forward, tuple(layer + 1 for layer in drafter.said.taps))
    name = (
        f"a DFlash drafter of {drafter.config.layer_count} layers, which guess "
        f"{stack.size - 1} tokens at once"
    )
    return BoundHead(step=step, forward=states, windows=step.windows, name=name)


def _stack(
    drafter: DFlashWeights,
    target: ModelConfig,
    embedding: WeightMatrix,
    lm_head: WeightMatrix,
    product: Product,
) -> BlockStack:
    tokens, graph = guessed(target.vocab_size, target.eos_token_ids), target.graph
    head = product(rows_of(lm_head, tokens))

    def embed(said: Sequence[int]) -> Tensor:
        return embedded(embedding, said) * graph.embedding_multiplier

    def logits(rows: Tensor) -> Tensor:
        found, cap = head(rows) * graph.logit_scale, graph.logit_softcap
        return (found / cap).tanh() * cap if cap else found

    return BlockStack(
        [_layer(drafter, index, product) for index in range(drafter.config.layer_count)],
        product(drafter.fc),
        drafter.context_norm.float(),
        drafter.norm.float(),
        logits,
        tokens.tolist(),
        embed,
        Rotaries(drafter.config, CPU),
        drafter.config.norm_eps,
        drafter.said.mask_token,
        drafter.said.block_size,
    )


def _layer(drafter: DFlashWeights, index: int, product: Product) -> BlockLayer:
    layer, config = drafter.layers[index], drafter.config
    gate_up, down = layer.dense
    queries = config.num_heads * config.head_size
    query, keys_values = _halves(layer, queries, product)
    assert layer.attention_norm is not None and layer.ffn_norm is not None
    return BlockLayer(
        query,
        keys_values,
        _biased(product(layer.output), layer.output_bias),
        _biased(product(gate_up), layer.gate_up_bias),
        _biased(product(down), layer.down_bias),
        layer.attention_norm.float(),
        layer.ffn_norm.float(),
        None if layer.query_norm is None else layer.query_norm.float(),
        None if layer.key_norm is None else layer.key_norm.float(),
        drafter.said.causal[index],
        config.kind(index).window,
    )


def _halves(layer: LayerWeights, queries: int, product: Product) -> tuple[RowProduct, RowProduct]:
    """Return what makes queries, and what makes keys and values: a context has these alone."""
    bias = layer.qkv_bias
    query = product(layer.qkv[:queries].contiguous())
    keys_values = product(layer.qkv[queries:].contiguous())
    if bias is None:
        return query, keys_values
    return _biased(query, bias[:queries]), _biased(keys_values, bias[queries:])


def _biased(product: RowProduct, bias: Tensor | None) -> RowProduct:
    if bias is None:
        return product
    own = bias.float()
    return lambda rows: product(rows) + own
