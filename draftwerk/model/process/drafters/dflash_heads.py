"""A DFlash drafter bound to its target."""

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from draftwerk.model.checkpoint.dflash_weights import DFlashWeights, read_dflash
from draftwerk.model.checkpoint.hf_config import read_supported
from draftwerk.model.checkpoint.weights import LayerWeights
from draftwerk.model.draft_head.head_windows import LONG_BLOCKS, LONG_CAPACITY, HeadWindows
from draftwerk.model.native.stored import rows_of
from draftwerk.model.process.drafters.head_target import CPU, HeadTarget
from draftwerk.model.reference.rotation import Rotaries
from draftwerk.model.step.backend import BoundHead
from draftwerk.model.step.layer_heads.block_layers import BlockHead, BlockLayer, BlockStack
from draftwerk.model.step.layer_heads.eagle import KeptStates, RowProduct
from draftwerk.model.step.layer_heads.mtp import guessed

MakeProduct = Callable[[Tensor], RowProduct]


def dflash_head(target: HeadTarget, folder: Path) -> BoundHead:
    """Return the drafter in a folder. Raises Refused."""
    drafter = read_dflash(folder, read_supported(target.directory))
    stack, config = _stack(drafter, target), drafter.config
    pages = target.pages(config, capacity=LONG_CAPACITY, blocks=LONG_BLOCKS)
    step = BlockHead(stack, pages, target.rank, HeadWindows(LONG_CAPACITY, LONG_BLOCKS))
    states = KeptStates(target.forward, tuple(layer + 1 for layer in drafter.said.taps))
    name = (
        f"a DFlash drafter of {config.layer_count} layers, which guess "
        f"{stack.size - 1} tokens at once"
    )
    return BoundHead(step=step, forward=states, windows=step.windows, name=name)


def _stack(drafter: DFlashWeights, target: HeadTarget) -> BlockStack:
    tokens = guessed(target.config.vocab_size, target.config.eos_token_ids)
    head, graph = target.product(rows_of(target.vocabulary.lm_head, tokens)), target.config.graph

    def logits(rows: Tensor) -> Tensor:
        found, cap = head(rows) * graph.logit_scale, graph.logit_softcap
        return (found / cap).tanh() * cap if cap else found

    return BlockStack(
        [_layer(drafter, index, target.product) for index in range(drafter.config.layer_count)],
        target.product(drafter.fc),
        drafter.context_norm.float(),
        drafter.norm.float(),
        logits,
        tokens.tolist(),
        target.embed,
        Rotaries(drafter.config, CPU),
        drafter.config.norm_eps,
        drafter.said.mask_token,
        drafter.said.block_size,
    )


def _layer(drafter: DFlashWeights, index: int, product: MakeProduct) -> BlockLayer:
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


def _halves(
    layer: LayerWeights, queries: int, product: MakeProduct
) -> tuple[RowProduct, RowProduct]:
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
