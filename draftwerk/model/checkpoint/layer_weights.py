"""Weights by layer: which tensors of a checkpoint, and which of their rows, a layer is made of."""

from collections.abc import Callable, Sequence
from typing import TypedDict, overload

import torch
from torch import Tensor

from draftwerk.model.checkpoint.architectures import BY_CLASS
from draftwerk.model.checkpoint.checkpoint_tensors import NamedRows, Tensors
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.expert_layers import expert_weights
from draftwerk.model.checkpoint.recurrent_layers import Recurrence
from draftwerk.model.checkpoint.recurrent_tensors import channels, input_rows
from draftwerk.model.checkpoint.shard import Shard
from draftwerk.model.checkpoint.text_part import EMBEDDING, HEAD
from draftwerk.model.checkpoint.weights import (
    LayerEmbeddings,
    LayerInput,
    LayerWeights,
    RecurrentWeights,
    Weights,
)


class MixerMatrices(TypedDict):
    """The matrices before and behind a mixer, by the names of `LayerWeights`."""

    qkv: Tensor
    qkv_bias: Tensor | None
    output: Tensor
    output_bias: Tensor | None


class MixerWeights(MixerMatrices, total=False):
    """What a layer's tokens see each other by, likewise."""

    query_norm: Tensor | None
    key_norm: Tensor | None
    sinks: Tensor | None
    taps: Tensor
    recurrent: RecurrentWeights
    value_norm: Tensor | None


class LazyLayers(Sequence[LayerWeights]):
    """Layers that are read each time that they are asked for."""

    def __init__(self, read: Callable[[int], LayerWeights], indices: range) -> None:
        self._read = read
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> LayerWeights: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[LayerWeights]: ...
    def __getitem__(self, index: int | slice) -> LayerWeights | Sequence[LayerWeights]:
        found = self._indices[index]
        return LazyLayers(self._read, found) if isinstance(found, range) else self._read(found)


def weights_of(
    tensors: Tensors, config: ModelConfig, shard: Shard, lazily: bool = False
) -> Weights:
    """Return the weights of a shard, with layers that are read when asked for, if `lazily`."""
    row = BY_CLASS[config.architecture]
    embedding, lm_head = _vocabulary(tensors, config, shard)
    layers = LazyLayers(lambda index: layer_weights(tensors, config, shard, index), shard.layers)
    return Weights(
        embedding=embedding,
        layers=layers if lazily else list(layers),
        norm=tensors.norm(row.names.last_norm, row),
        lm_head=lm_head,
        inputs=_inputs(tensors, config) if config.graph.per_layer_size else None,
    )


def _inputs(tensors: Tensors, config: ModelConfig) -> LayerEmbeddings:
    """Return the embeddings that layers have of their own."""
    row = BY_CLASS[config.architecture]
    rows = range(config.layer_count * config.graph.per_layer_size)
    return LayerEmbeddings(
        embedding=tensors.vocabulary(
            f"{row.names.layer_embedding}.weight", range(config.vocab_size)
        ),
        projection=tensors.fused([(f"{row.names.layer_projection}.weight", rows)]),
        norm=tensors.norm(row.names.layer_norm, row),
    )


def _vocabulary(tensors: Tensors, config: ModelConfig, shard: Shard) -> tuple[Tensor, Tensor]:
    """Return the embedding if the shard begins the model, and its rows of the lm_head."""
    is_tied = config.tied_embeddings
    if is_tied and (stored := tensors.find(HEAD)) is not None:
        # Transformers ties what is equal: a head of its own means that the config is wrong.
        is_tied = torch.equal(stored, tensors.take(EMBEDDING))
    everything = range(config.vocab_size)
    embedding = tensors.vocabulary(EMBEDDING, everything if shard.is_first else range(0))
    if is_tied and shard.is_first and shard.vocab == everything:
        return embedding, embedding
    return embedding, tensors.vocabulary(EMBEDDING if is_tied else HEAD, shard.vocab)


def layer_weights(tensors: Tensors, config: ModelConfig, shard: Shard, index: int) -> LayerWeights:
    """Return the weights that a shard has of one layer."""
    row = BY_CLASS[config.architecture]
    names, layer = row.tensor_names(tensors.of_gguf), f"model.layers.{index}."
    has_experts, dense = config.kind(index).has_experts, config.dense_size(index)
    own_size = has_experts or config.kind(index).ffn_size
    ffn = range(dense) if own_size else shard.ffn
    halves = [(ffn.start, ffn.stop, dense)] * (1 + config.graph.is_gated)
    gate_up_names, down_name = names.dense(has_experts)
    gate_up = _rows_of(layer, gate_up_names, halves)
    down = [(f"{layer}{down_name}", shard.hidden)]
    mixer = MIXERS[config.kind(index).mixer]

    def norm(name: str | None) -> Tensor | None:
        return None if name is None else tensors.norm(layer + name, row)

    return LayerWeights(
        **mixer(tensors, config, shard, index),
        attention_norm=norm(names.attention_norm),
        ffn_norm=norm(names.ffn_norm),
        gate_up=tensors.fused(_named(gate_up, "weight")) if dense else None,
        gate_up_bias=tensors.fused_bias(_named(gate_up, "bias")),
        down=tensors.fused(_named(down, "weight")) if dense else None,
        down_bias=tensors.fused_bias(_named(down, "bias")),
        after_attention=norm(names.after_attention),
        after_ffn=norm(names.after_ffn),
        experts=expert_weights(
            tensors, config.experts, row, layer, shard.hidden, config.hidden_size
        )
        if config.experts and has_experts
        else None,
        input=_input(tensors, config, layer) if config.graph.per_layer_size else None,
        scalar=tensors.exact(f"{layer}{names.layer_scalar}.weight").flatten()
        if config.graph.has_layer_scalar
        else None,
    )


def _input(tensors: Tensors, config: ModelConfig, layer: str) -> LayerInput:
    """Return what adds a layer's own embedding."""
    row, size = BY_CLASS[config.architecture], config.graph.per_layer_size
    return LayerInput(
        gate=tensors.fused([(f"{layer}{row.names.layer_gate}.weight", range(size))]),
        output=tensors.fused(
            [(f"{layer}{row.names.layer_output}.weight", range(config.hidden_size))]
        ),
        norm=tensors.norm(layer + row.names.after_input, row),
    )


def _attention(tensors: Tensors, config: ModelConfig, shard: Shard, index: int) -> MixerWeights:
    """Return what a layer attends with."""
    kind, (kv_count, size) = config.kind(index), config.key_heads(index)
    row, layer = BY_CLASS[config.architecture], f"model.layers.{index}."
    names = row.names
    kv_heads = range(kv_count) if kind.kv_heads else shard.kv_heads
    stored = 0 if kind.kv_from >= 0 else 2 - kind.keys_are_values
    spans = [
        (heads.start * size, heads.stop * size, count * size)
        for heads, count in [(shard.heads, config.num_heads), *[(kv_heads, kv_count)] * stored]
    ]
    rows = _rows_of(layer, names.qkv, spans)
    if config.graph.has_output_gate:
        rows = _gates_last(rows, size)

    def head_norm(name: str, heads: int) -> Tensor | None:
        if not config.query_key_norm:
            return None
        if "{}" not in name:
            return tensors.norm(layer + name, row)
        if (all_heads := tensors.find(f"{layer}{name}.weight")) is not None:
            return all_heads.flatten()
        own = (tensors.take(f"{layer}{name.format(head)}.weight") for head in range(heads))
        return torch.cat(list(own))

    def in_halves(stacked: Tensor) -> Tensor:
        heads = len(shard.heads) + len(kv_heads)
        return tensors.in_halves(stacked, heads, size, 2 * len(config.rope_inverse_frequencies))

    around = _around(tensors, rows, layer + names.output, shard)
    if row.pairs_are_neighbours:
        bias = around["qkv_bias"]
        around["qkv"] = in_halves(around["qkv"])
        around["qkv_bias"] = None if bias is None else in_halves(bias)
    return MixerWeights(
        **around,
        query_norm=head_norm(names.query_norm, config.num_heads),
        key_norm=head_norm(names.key_norm, kv_count) if stored else None,
        value_norm=torch.ones(size) if config.graph.has_value_norm and stored else None,
        sinks=tensors.find(f"{layer}{names.sinks}.weight"),
    )


def _gates_last(rows: NamedRows, size: int) -> NamedRows:
    """Return rows of queries that take turns with their gates, a head each, with those behind."""
    (name, queries), *others = rows
    heads = range(2 * queries.start, 2 * queries.stop, 2 * size)
    own = [(name, range(first, first + size)) for first in heads]
    gates = [(name, range(first + size, first + 2 * size)) for first in heads]
    return [*own, *others, *gates]


def _convolution(tensors: Tensors, config: ModelConfig, shard: Shard, index: int) -> MixerWeights:
    """Return what a layer convolves with."""
    names, hidden = BY_CLASS[config.architecture].names, config.hidden_size
    layer = f"model.layers.{index}."
    name = layer + names.convolution
    taps, bias = tensors.values(f"{name}.weight"), tensors.find(f"{name}.bias")
    rows = [taps.reshape(hidden, config.kernel_size).T, *(() if bias is None else (bias[None],))]
    inputs = [(layer + names.convolution_input, range(3 * hidden))]
    return MixerWeights(
        **_around(tensors, inputs, layer + names.convolution_output, shard),
        taps=torch.cat(rows),
    )


def _recurrence(tensors: Tensors, config: ModelConfig, shard: Shard, index: int) -> MixerWeights:
    """Return what a recurrent layer has."""
    rule, row = config.recurrence, BY_CLASS[config.architecture]
    assert rule is not None
    layer = f"model.layers.{index}.{row.names.recurrence}"
    skip = tensors.exact(f"{layer}D").flatten() if rule.rule == "mamba" else None
    inputs = [(layer + name, own) for name, own in input_rows(row, rule, tensors.of_gguf)]
    return MixerWeights(
        **_around(tensors, inputs, f"{layer}out_proj", shard),
        taps=_recurrent_taps(tensors, rule, f"{layer}conv1d."),
        recurrent=RecurrentWeights(
            decay=tensors.decay(f"{layer}A_log").flatten(),
            step_bias=tensors.exact(f"{layer}dt_bias"),
            norm=tensors.values(f"{layer}norm.weight").flatten(),
            skip=skip,
        ),
    )


def _recurrent_taps(tensors: Tensors, rule: Recurrence, name: str) -> Tensor:
    """Return a convolution's weights by tap, and its biases if it has some."""
    order = torch.cat([torch.arange(own.start, own.stop) for own in channels(rule)])
    taps = tensors.values(f"{name}weight").reshape(rule.channels, rule.kernel_size)[order].T
    bias = tensors.find(f"{name}bias")
    return torch.cat([taps, *(() if bias is None else (bias[order][None],))])


MIXERS = {"attention": _attention, "convolution": _convolution, "recurrence": _recurrence}


def _around(tensors: Tensors, inputs: NamedRows, output: str, shard: Shard) -> MixerMatrices:
    """Return the matrices before and behind a mixer, and their biases."""
    outputs = [(output, shard.hidden)]
    return {
        "qkv": tensors.fused(_named(inputs, "weight")),
        "qkv_bias": tensors.fused_bias(_named(inputs, "bias")),
        "output": tensors.fused(_named(outputs, "weight")),
        "output_bias": tensors.fused_bias(_named(outputs, "bias")),
    }


def _named(rows: NamedRows, kind: str) -> NamedRows:
    """Return rows of weights or biases."""
    return [(f"{name}.{kind}", own) for name, own in rows]


def _rows_of(layer: str, names: Sequence[str], spans: Sequence[tuple[int, int, int]]) -> NamedRows:
    """Return rows start .. stop of each part, of as many as it has, in its own matrix or in one."""
    found: NamedRows = []
    before = 0
    for part, (start, stop, count) in enumerate(spans):
        if len(names) == 1:
            found.append((layer + names[0], range(before + start, before + stop)))
            before += count
        else:
            found.append((layer + names[part], range(start, stop)))
    return found
