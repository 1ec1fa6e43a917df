"""Small models of a GGUF's own blocks, and the same weights as floats."""

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.stored_matrix import StoredMatrix
from draftwerk.model.checkpoint.weights import LayerWeights, Weights
from draftwerk.model.native.stored import dequantised
from tests.model.native.models import random_weights, tiny_config
from tests.support.stored_blocks import stored

Blocks = tuple[StoredMatrix, ...]


def wide_config(**changes) -> ModelConfig:
    """Return a shape whose every matrix has inputs in units of 256."""
    sizes = {"hidden_size": 256, "ffn_size": 512, "num_heads": 8, "head_size": 32}
    return tiny_config(**sizes | changes)


@dataclass(frozen=True)
class Kinds:
    """The types of a model's matrices."""

    q: str
    k: str
    v: str
    output: str
    gate: str
    up: str
    down: str
    head: str
    embedding: str | None = None
    """None: the head's rows are the embedding's."""

    @classmethod
    def all(cls, kind: str, embedding: str | None = None) -> "Kinds":
        return cls(kind, kind, kind, kind, kind, kind, kind, kind, embedding)


MIXED = Kinds("Q4_K", "Q5_K", "Q6_K", "Q3_K", "IQ4_XS", "Q2_K", "Q6_K", "Q8_0", "Q4_K")


def stored_weights(config: ModelConfig, kinds: Kinds, seed: int = 0) -> Weights[Blocks]:
    """Return a model in these types; its values are of a model's ordinary size."""
    plain = random_weights(config, biases=True, seed=seed)
    heads, kv = (count * config.head_size for count in (config.num_heads, config.num_kv_heads))
    ffn = config.ffn_size

    def layer(of: LayerWeights) -> LayerWeights[Blocks]:
        q, k, v = of.qkv.split([heads, kv, kv])
        gate, up = of.gate_up.split([ffn, ffn])
        blocks = replace(
            of,
            qkv=(stored(q, kinds.q), stored(k, kinds.k), stored(v, kinds.v)),
            output=(stored(of.output, kinds.output),),
            gate_up=(stored(gate, kinds.gate), stored(up, kinds.up)),
            down=(stored(of.down, kinds.down),),
        )
        return cast(LayerWeights[Blocks], blocks)

    head = (stored(plain.lm_head, kinds.head),)
    embedding = head
    if kinds.embedding is not None:
        embedding = (stored(plain.embedding, kinds.embedding),)
    return Weights(embedding, [layer(of) for of in plain.layers], plain.norm, head)


def values_of(weights: Weights[Blocks]) -> Weights:
    """Return the same model as floats."""

    def whole(parts: Blocks) -> Tensor:
        return torch.cat([dequantised(part) for part in parts])

    layers = [
        replace(
            cast(LayerWeights, layer),
            qkv=whole(layer.qkv),
            output=whole(layer.output),
            gate_up=whole(layer.gate_up),
            down=whole(layer.down),
        )
        for layer in weights.layers
    ]
    return Weights(whole(weights.embedding), layers, weights.norm, whole(weights.lm_head))


def reordered(parts: Blocks, seed: int = 0) -> Blocks:
    """Return the same rows, read from blocks in another order."""
    generator = np.random.default_rng(seed)
    found: list[StoredMatrix] = []
    for part in parts:
        order = generator.permutation(part.shape[0])
        data = np.empty_like(part.data)
        data[order] = part.data
        found.append(part._replace(data=data, rows=order))
    return tuple(found)
