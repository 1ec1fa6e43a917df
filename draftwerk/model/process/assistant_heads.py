"""A Gemma 4 assistant bound to its target on a CPU: in torch, or on the native kernels."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import torch
from msgspec.structs import replace as with_fields
from torch import Tensor
from torch.nn.functional import linear

from draftwerk.model.checkpoint.assistant import AssistantWeights
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.shard import Shard, whole
from draftwerk.model.checkpoint.weights import WeightMatrix, Weights
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.native_shape import kv_format
from draftwerk.model.process.head_products import embedded, row_product
from draftwerk.model.process.parts import NativePart
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.sampler import best_tokens
from draftwerk.model.step.backend import BoundHead
from draftwerk.model.step.layer_heads.assistant_layers import (
    AssistantHead,
    ClusterScores,
    Joints,
    TokenScores,
)
from draftwerk.model.step.layer_heads.eagle import RowProduct
from draftwerk.model.step.layer_heads.layer_head import RankTokens
from draftwerk.model.step.layer_heads.mtp import guessed


def torch_assistant(
    assistant: AssistantWeights, target: ModelConfig, embedding: Tensor, forward: TorchForward
) -> BoundHead:
    """Return an assistant in torch."""
    config, shard, weights, scores = _alone(assistant, target)
    stage = TorchForward(config, weights, forward.attention, shard, host=target)

    def product(matrix: Tensor) -> RowProduct:
        return lambda rows: linear(rows.to(matrix.dtype), matrix)

    joints = _joints(assistant, target, embedding, embedding.dtype, product)
    step = AssistantHead(stage, joints, scores, best_tokens)
    return BoundHead(step=step, forward=forward, name=_name(assistant))


def native_assistant(
    assistant: AssistantWeights,
    options: ModelOptions,
    part: NativePart,
    embedding: WeightMatrix,
    rank: RankTokens,
) -> BoundHead:
    """Return an assistant on the native kernels, in eight bits but for fp32."""
    dtype, pool, target = options.dtype, part.pool, part.model.config
    config, shard, weights, scores = _alone(assistant, target)
    own, kept_as = "fp32" if dtype == "fp32" else "int8", kv_format(dtype, options.kv_dtype)
    stage = NativeForward(config, weights, own, pool, kept_as, shard=shard, host=target)
    rounded = torch.bfloat16 if dtype == "bf16" else torch.float32
    product = partial(row_product, dtype=dtype, pool=pool)
    joints = _joints(assistant, target, embedding, rounded, product)
    step = AssistantHead(stage, joints, scores, rank)
    return BoundHead(step=step, forward=part.forward, name=_name(assistant))


def _alone(
    assistant: AssistantWeights, target: ModelConfig
) -> tuple[ModelConfig, Shard, Weights, TokenScores | ClusterScores]:
    """Return the layers as a model that embeds no tokens, and what scores tokens of its head's."""
    if (clusters := assistant.clusters) is None:
        tokens = guessed(target.vocab_size, target.eos_token_ids)
        head, scores = assistant.head[tokens], TokenScores(tokens)
    else:
        head = clusters.centroids
        scores = ClusterScores(clusters.tokens, assistant.head, clusters.used)
    config = with_fields(assistant.config, vocab_size=len(head))
    weights = Weights(assistant.head[:0], assistant.layers, assistant.norm, head)
    return config, replace(whole(config), is_first=False), weights, scores


def _joints(
    assistant: AssistantWeights,
    target: ModelConfig,
    embedding: WeightMatrix,
    dtype: torch.dtype,
    product: Callable[[Tensor], RowProduct],
) -> Joints:
    multiplier = float(torch.tensor(target.graph.embedding_multiplier, dtype=dtype))

    def embed(tokens: Sequence[int]) -> Tensor:
        return embedded(embedding, tokens) * multiplier

    return Joints(embed, product(assistant.before), product(assistant.after))


def _name(assistant: AssistantWeights) -> str:
    layers = assistant.config.layer_count
    return f"a Gemma 4 assistant of {layers} layers, which read the model's keys and values"
