"""A model's weights in memory: safetensors, mapped; projections fused as in `Weights`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypedDict, cast, overload

import torch
from safetensors import safe_open
from torch import Tensor

from draftwerk.model.checkpoint.architectures import BY_CLASS, architecture_of
from draftwerk.model.checkpoint.config import DeltaRule, Experts, ModelConfig
from draftwerk.model.checkpoint.families.architecture import Architecture
from draftwerk.model.checkpoint.files.shards import StoredTensor, stored_tensors
from draftwerk.model.checkpoint.gguf_card import read_card
from draftwerk.model.checkpoint.gguf_tensors import (
    Dequantise,
    GgufFiles,
    halves_of_neighbours,
    plain_values,
    stored_rows,
    tensor_values,
)
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import read_supported
from draftwerk.model.checkpoint.inventory import (
    DELTA_BY_HEAD,
    DELTA_INPUTS,
    EMBEDDING,
    HEAD,
    STACKED,
    check_tensors,
    text_tensors,
)
from draftwerk.model.checkpoint.lora.lora_card import LoraCard
from draftwerk.model.checkpoint.lora.lora_merge import MergedAdapters
from draftwerk.model.checkpoint.quantised.quantised_matrices import (
    QuantisedMatrices,
    within_expert,
)
from draftwerk.model.checkpoint.quantised.scheme import Scheme, scheme_of
from draftwerk.model.checkpoint.shard import Shard, whole
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import DeltaWeights, ExpertWeights, LayerWeights, Weights
from draftwerk.speculative.protocol.frames import OnProgress

CPU = torch.device("cpu")
NamedRows = list[tuple[str, range]]
"""Tensors by name, and which of their rows."""
STORED = {torch.bfloat16: torch.bfloat16}
"""What is kept as it is stored; everything else is read as float32."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Everything read from disk; `directory` also holds the tokenizer's files."""

    name: str
    directory: Path
    config: ModelConfig
    weights: Weights
    files: GgufFiles | None = None
    """What a GGUF's weights are read from."""

    def layer_done(self, index: int) -> None:
        """Say that a layer was read."""
        if self.files is not None:
            self.files.layer_done(index)

    def being_read(self) -> AbstractContextManager[None]:
        """Have little of the files in memory. Raises Refused if one was written meanwhile."""
        return nullcontext() if self.files is None else self.files.being_read()


def load(
    source: str | None,
    dtype: torch.dtype | None,
    device: torch.device = CPU,
    progress: OnProgress = lambda _: None,
    matrices: bool = True,
    shard: Shard | None = None,
    keeps_blocks: bool = False,
    dequantise: Dequantise | None = None,
    merged: Sequence[LoraCard] = (),
) -> Checkpoint:
    """Find a model and read its weights onto a device, as `dtype` or, if None, as stored.

    A GGUF's matrices are dequantised, those of a layer as it is asked for where `dequantise` does
    so; or they keep the file's blocks, and are then parts, not tensors.

    Without `matrices` those of the layers have shapes alone (`meta`). Of a `shard` nothing else is
    read: its layers, its rows of each matrix, and empty tensors for the embedding or the lm_head
    that it does not have. The config is the whole model's.

    Adapters that are `merged` are added to the matrices.

    Raises Refused, naming the cause, for whatever is not a model that is served.
    """
    name, directory = locate(source, progress)
    config = read_config(directory)
    card = read_card(directory)
    shard = shard or whole(config)
    if merged and (card is not None or scheme_of(read_supported(directory))):
        raise Refused(
            f"{merged[0].path}: it cannot be merged into {name}: that takes safetensors that are "
            "not quantised; lora serves it beside them"
        )
    if card is None:
        tensors = _safetensors(directory, dtype, device, matrices, keeps_blocks, dequantise)
        tensors.merged = MergedAdapters(merged)
        progress(f"reading {name}")
        lazily = isinstance(tensors, QuantisedTensors)
        return Checkpoint(name, directory, config, _weights(tensors, config, shard, lazily))
    card.check_unchanged()
    files = GgufFiles(card, progress)
    tensors = GgufTensors(files, dtype, device, keeps_blocks, dequantise)
    weights = _weights(tensors, config, shard, lazily=dequantise is not None)
    return Checkpoint(card.name, directory, config, weights, files)


def load_vocabulary(source: str | None, dtype: torch.dtype | None) -> Weights:
    """Return a model's embedding, last norm and lm_head, whole, and no layer.

    They are mapped where they are kept as stored. Raises Refused.
    """
    _, directory = locate(source)
    config, card = read_config(directory), read_card(directory)
    if card is None:
        tensors = _safetensors(directory, dtype, CPU)
    else:
        tensors = GgufTensors(GgufFiles(card), dtype, CPU)
    return _weights(tensors, config, replace(whole(config), layers=range(0)))


def _safetensors(
    directory: Path,
    dtype: torch.dtype | None,
    device: torch.device,
    matrices: bool = True,
    keeps_blocks: bool = False,
    dequantise: Dequantise | None = None,
) -> "Tensors":
    stored, hf = text_tensors(stored_tensors(directory)), read_supported(directory)
    if scheme := scheme_of(hf):
        tensors = QuantisedTensors(stored, scheme, dtype, device, matrices)
        tensors.keeps_blocks, tensors.dequantise = keeps_blocks, dequantise or plain_values
    else:
        tensors = Tensors(stored, dtype, device, matrices)
    tensors.experts_are_columns = architecture_of(hf).experts_interleave
    check_tensors(hf, tensors.stored)
    return tensors


class Tensors:
    """A checkpoint's tensors by name; it has passed `check_tensors`."""

    experts_are_columns = False
    """Whether those of all experts are [experts, in, out], not [experts, out, in]."""

    def __init__(
        self,
        stored: Mapping[str, StoredTensor],
        dtype: torch.dtype | None,
        device: torch.device,
        matrices: bool = True,
    ) -> None:
        """Without `matrices` those of layers are given without data."""
        self.matrices = matrices
        self.stored = stored
        self.dtype = dtype
        self.device = device
        self.merged = MergedAdapters(())
        paths = {tensor.path for tensor in stored.values()}
        self.open = {path: safe_open(path, framework="pt") for path in paths}

    def take(self, name: str, rows: range | None = None) -> Tensor:
        """Return a tensor that the checkpoint is known to hold, or some of its rows."""
        file, own = self.open[self.stored[name].path], self.stored[name].name or name
        shape = self.stored[name].shape
        if rows is not None and len(shape) == 3:
            expert, within = within_expert(shape[2 if self.experts_are_columns else 1], rows)
            matrix = file.get_slice(own)[expert]
            tensor = (matrix.T if self.experts_are_columns else matrix)[within].contiguous()
        elif rows is None or len(rows) == shape[0]:
            tensor = file.get_tensor(own)
        elif not rows:
            return torch.empty(0, *shape[1:], dtype=self.dtype)
        else:
            tensor = file.get_slice(own)[rows.start : rows.stop]
        tensor = self.merged.added(name, rows, tensor)
        return tensor.to(self.device, self.dtype or STORED.get(tensor.dtype, torch.float32))

    def norm(self, name: str, row: Architecture) -> Tensor:
        """Return a norm's weights, its offset added in float32, and behind them its biases."""
        weight = self._norm_weight(f"{name}.weight", row.norm_offset)
        bias = self.find(f"{name}.bias") if row.has_norm_bias else None
        return weight if bias is None else torch.cat([weight, bias.to(weight.dtype)])

    def _norm_weight(self, name: str, offset: int) -> Tensor:
        if not offset:
            return self.take(name)
        held = self.stored[name]
        weight = self.open[held.path].get_tensor(held.name or name)
        return weight.to(self.device, torch.float32) + offset

    def in_halves(self, stacked: Tensor, heads: int, size: int, turned: int) -> Tensor:
        """Return rows of heads, and what is below them, so that rotation pairs i with i + half."""
        order = halves_of_neighbours(heads, size, turned).to(stacked.device)
        if stacked.device.type == "meta":
            return stacked
        return torch.cat([stacked[order], stacked[len(order) :]])

    def values(self, name: str) -> Tensor:
        """Return a matrix as numbers, whatever the others are kept as."""
        return self.take(name)

    def find(self, name: str) -> Tensor | None:
        """Return a tensor, or None where there is none of that name."""
        return self.take(name) if name in self.stored else None

    def fused(self, parts: NamedRows) -> Tensor:
        """Return rows of matrices stacked."""
        if self.matrices:
            return self.matrix(parts)
        (first, _), *_ = parts
        rows = sum(len(rows) for _, rows in parts)
        shape = self.stored[first].shape
        inputs = shape[1] if self.experts_are_columns and len(shape) == 3 else shape[-1]
        return torch.empty(rows, inputs, device="meta")

    def vocabulary(self, name: str, rows: range) -> Tensor:
        """Return rows of the embedding or the lm_head."""
        return self.take(name, rows)

    def matrix(self, parts: NamedRows) -> Tensor:
        """Return rows of matrices stacked, with their numbers."""
        taken = [self.take(name, rows) for name, rows in parts]
        return taken[0] if len(taken) == 1 else torch.cat(taken)

    def fused_bias(self, parts: NamedRows) -> Tensor | None:
        """Return biases joined, or None; a checkpoint has all of them or none."""
        if parts[0][0] not in self.stored:
            return None
        return torch.cat([self.take(name, rows) for name, rows in parts])


class GgufTensors(Tensors):
    """A GGUF's tensors: rounded to bf16, or matrices in the file's own blocks."""

    def __init__(
        self,
        files: GgufFiles,
        dtype: torch.dtype | None,
        device: torch.device,
        keeps_blocks: bool = False,
        dequantise: Dequantise | None = None,
    ) -> None:
        super().__init__({}, dtype, device)
        self.files = files
        self.stored = files.card.tensors
        self.keeps_blocks = keeps_blocks
        self.dequantise = dequantise

    def take(self, name: str, rows: range | None = None) -> Tensor:
        if rows is not None and not rows:
            return torch.empty(0, *self.stored[name].shape[1:], dtype=self.dtype)
        values = tensor_values(self.files, self.stored[name], rows, self.dequantise)
        if self.keeps_blocks:
            return values
        return values.to(torch.bfloat16).to(self.device, self.dtype or torch.bfloat16)

    def _norm_weight(self, name: str, offset: int) -> Tensor:
        if not offset:
            return self.take(name)
        # Added already, and not to be rounded.
        return tensor_values(self.files, self.stored[name]).to(self.device)

    def in_halves(self, stacked: Tensor, heads: int, size: int, turned: int) -> Tensor:
        """Return the rows as they are: the card has their order."""
        return stacked

    def vocabulary(self, name: str, rows: range) -> Tensor:
        return self.matrix([(name, rows)])

    def matrix(self, parts: NamedRows) -> Tensor:
        if not self.keeps_blocks:
            return super().matrix(parts)
        # What reads blocks is told so by their type.
        blocks = [stored_rows(self.files, self.stored[name], rows) for name, rows in parts if rows]
        return cast(Tensor, tuple(blocks))


class QuantisedTensors(Tensors):
    """Tensors of safetensors that are quantised: rounded to bf16, or matrices as blocks."""

    keeps_blocks: bool
    dequantise: Dequantise

    def __init__(
        self,
        stored: dict[str, StoredTensor],
        scheme: Scheme,
        dtype: torch.dtype | None,
        device: torch.device,
        matrices: bool = True,
    ) -> None:
        super().__init__(stored, dtype, device, matrices)

        def read(name: str, expert: int | None = None) -> Tensor:
            held = stored[name]
            file, own = self.open[held.path], held.name or name
            return file.get_tensor(own) if expert is None else file.get_slice(own)[expert]

        self.quantised = QuantisedMatrices(scheme, stored, read)
        self.stored = self.quantised.inventory

    def take(self, name: str, rows: range | None = None) -> Tensor:
        if name not in self.quantised:
            return super().take(name, rows)
        rows = range(self.stored[name].shape[0]) if rows is None else rows
        values = self.dequantise(self.quantised.blocks(name, rows))
        return values.to(torch.bfloat16).to(self.device, self.dtype or torch.bfloat16)

    def fused(self, parts: NamedRows) -> Tensor:
        return self._blocks(parts, self.matrices) if self.keeps_blocks else super().fused(parts)

    def in_halves(self, stacked: Tensor, heads: int, size: int, turned: int) -> Tensor:
        if self.keeps_blocks:
            raise Refused(
                "quantised safetensors of this family are not supported: rotation pairs "
                "neighbours in it; take a GGUF, or dtype bf16"
            )
        return super().in_halves(stacked, heads, size, turned)

    def vocabulary(self, name: str, rows: range) -> Tensor:
        return self._blocks([(name, rows)], True) if self.keeps_blocks else self.take(name, rows)

    def _blocks(self, parts: NamedRows, is_read: bool) -> Tensor:
        found = [self.quantised.blocks(*part, is_read=is_read) for part in parts if part[1]]
        return cast(Tensor, tuple(found))


class MixerWeights(TypedDict):
    """What a layer's tokens see each other by, by the names of `LayerWeights`."""

    qkv: Tensor
    qkv_bias: Tensor | None
    query_norm: Tensor | None
    key_norm: Tensor | None
    output: Tensor
    output_bias: Tensor | None
    sinks: Tensor | None
    taps: Tensor | None
    delta: DeltaWeights | None


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


def _weights(tensors: Tensors, config: ModelConfig, shard: Shard, lazily: bool = False) -> Weights:
    row = BY_CLASS[config.architecture]
    embedding, lm_head = _vocabulary(tensors, config, shard)
    layers = LazyLayers(lambda index: _layer(tensors, config, shard, index), shard.layers)
    return Weights(
        embedding=embedding,
        layers=layers if lazily else list(layers),
        norm=tensors.norm(row.names.last_norm, row),
        lm_head=lm_head,
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


def _layer(tensors: Tensors, config: ModelConfig, shard: Shard, index: int) -> LayerWeights:
    row = BY_CLASS[config.architecture]
    names, layer = row.names, f"model.layers.{index}."
    has_experts, dense = config.kind(index).has_experts, config.dense_size(index)
    ffn = range(dense) if has_experts else shard.ffn
    halves = [(ffn.start, ffn.stop, dense)] * (1 + config.graph.is_gated)
    gate_up_names, down_name = names.dense(has_experts)
    mixer = MIXERS[config.kind(index).mixer]

    def gate_up(kind: str) -> NamedRows:
        return _rows_of(layer, gate_up_names, kind, halves)

    def down(kind: str) -> NamedRows:
        return [(f"{layer}{down_name}.{kind}", shard.hidden)]

    def norm(name: str | None) -> Tensor | None:
        return None if name is None else tensors.norm(layer + name, row)

    return LayerWeights(
        **mixer(tensors, config, shard, layer),
        attention_norm=norm(names.attention_norm),
        ffn_norm=norm(names.ffn_norm),
        gate_up=tensors.fused(gate_up("weight")) if dense else None,
        gate_up_bias=tensors.fused_bias(gate_up("bias")),
        down=tensors.fused(down("weight")) if dense else None,
        down_bias=tensors.fused_bias(down("bias")),
        after_attention=norm(names.after_attention),
        after_ffn=norm(names.after_ffn),
        experts=_experts(tensors, config.experts, row, layer, shard.hidden)
        if config.experts and has_experts
        else None,
    )


def _attention(tensors: Tensors, config: ModelConfig, shard: Shard, layer: str) -> MixerWeights:
    """Return what a layer attends with."""
    size, row = config.head_size, BY_CLASS[config.architecture]
    names = row.names
    spans = [
        (heads.start * size, heads.stop * size, count * size)
        for heads, count in (
            (shard.heads, config.num_heads),
            (shard.kv_heads, config.num_kv_heads),
            (shard.kv_heads, config.num_kv_heads),
        )
    ]

    def qkv(kind: str) -> NamedRows:
        rows = _rows_of(layer, names.qkv, kind, spans)
        return _gates_last(rows, size) if config.graph.has_output_gate else rows

    def output(kind: str) -> NamedRows:
        return [(f"{layer}{names.output}.{kind}", shard.hidden)]

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
        heads = len(shard.heads) + len(shard.kv_heads)
        return tensors.in_halves(stacked, heads, size, 2 * len(config.rope_inverse_frequencies))

    order = in_halves if row.pairs_are_neighbours else lambda stacked: stacked
    bias = tensors.fused_bias(qkv("bias"))
    return MixerWeights(
        qkv=order(tensors.fused(qkv("weight"))),
        qkv_bias=None if bias is None else order(bias),
        query_norm=head_norm(names.query_norm, config.num_heads),
        key_norm=head_norm(names.key_norm, config.num_kv_heads),
        output=tensors.fused(output("weight")),
        output_bias=tensors.fused_bias(output("bias")),
        sinks=tensors.find(f"{layer}{names.sinks}.weight"),
        taps=None,
        delta=None,
    )


def _gates_last(rows: NamedRows, size: int) -> NamedRows:
    """Return rows of queries that take turns with their gates, a head each, with those behind."""
    (name, queries), *others = rows
    heads = range(2 * queries.start, 2 * queries.stop, 2 * size)
    own = [(name, range(first, first + size)) for first in heads]
    gates = [(name, range(first + size, first + 2 * size)) for first in heads]
    return [*own, *others, *gates]


def _convolution(tensors: Tensors, config: ModelConfig, shard: Shard, layer: str) -> MixerWeights:
    """Return what a layer convolves with."""
    names, hidden = BY_CLASS[config.architecture].names, config.hidden_size
    name = layer + names.convolution
    taps, bias = tensors.values(f"{name}.weight"), tensors.find(f"{name}.bias")
    rows = [taps.reshape(hidden, config.taps).T, *(() if bias is None else (bias[None],))]

    def inputs(kind: str) -> NamedRows:
        return [(f"{layer}{names.convolution_input}.{kind}", range(3 * hidden))]

    def outputs(kind: str) -> NamedRows:
        return [(f"{layer}{names.convolution_output}.{kind}", shard.hidden)]

    return MixerWeights(
        qkv=tensors.fused(inputs("weight")),
        qkv_bias=tensors.fused_bias(inputs("bias")),
        query_norm=None,
        key_norm=None,
        output=tensors.fused(outputs("weight")),
        output_bias=tensors.fused_bias(outputs("bias")),
        sinks=None,
        taps=torch.cat(rows),
        delta=None,
    )


def _delta(tensors: Tensors, config: ModelConfig, shard: Shard, layer: str) -> MixerWeights:
    """Return what a layer with a delta rule has."""
    rule, layer = config.delta, layer + BY_CLASS[config.architecture].names.delta
    assert rule is not None
    inputs = [
        (f"{layer}{name}.weight", range(rows))
        for name, rows in zip(DELTA_INPUTS, rule.rows, strict=True)
    ]
    if BY_CLASS[config.architecture].has_delta_by_head:
        inputs = list(_by_head(layer, rule))
    taps = tensors.values(f"{layer}conv1d.weight")
    return MixerWeights(
        qkv=tensors.fused(inputs),
        qkv_bias=None,
        query_norm=None,
        key_norm=None,
        output=tensors.fused([(f"{layer}out_proj.weight", shard.hidden)]),
        output_bias=None,
        sinks=None,
        taps=taps.reshape(rule.channels, rule.taps).T.contiguous(),
        delta=DeltaWeights(
            decay=-tensors.values(f"{layer}A_log").float().exp(),
            step_bias=tensors.values(f"{layer}dt_bias").float(),
            norm=tensors.values(f"{layer}norm.weight"),
        ),
    )


def _by_head(layer: str, rule: DeltaRule) -> Iterator[tuple[str, range]]:
    """Yield rows that lie by key head, in the order of the rule's."""
    group = rule.value_heads // rule.key_heads
    values = group * rule.value_size
    matrices = (rule.key_size, rule.key_size, values, values), (group, group)
    for name, counts in zip(DELTA_BY_HEAD, matrices, strict=True):
        for part, count in enumerate(counts):
            firsts = range(sum(counts[:part]), rule.key_heads * sum(counts), sum(counts))
            yield from ((f"{layer}{name}.weight", range(at, at + count)) for at in firsts)


MIXERS = {"attention": _attention, "convolution": _convolution, "delta": _delta}


def _experts(
    tensors: Tensors, experts: Experts, row: Architecture, layer: str, hidden: range
) -> ExpertWeights:
    """Read a layer's experts: each one's tensors, or its rows of one tensor of all."""
    names, size = row.names, experts.ffn_size
    gate_up, down = names.expert_gate_up, names.expert_down
    if f"{layer}{STACKED[0]}.weight" in tensors.stored:
        gate_up, down = STACKED[:2], STACKED[2]

    def rows(part: str, expert: int, count: int) -> tuple[str, range]:
        first = 0 if "{}" in part else expert * count
        return f"{layer}{part.format(expert)}.weight", range(first, first + count)

    each = range(experts.count)
    height = size * (2 // len(gate_up))

    def gates_and_ups(expert: int) -> NamedRows:
        found = [rows(one, expert, height) for one in gate_up]
        if not tensors.experts_are_columns:
            return found
        ((name, both),) = found
        return [(name, both[::2]), (name, both[1::2])]

    biases = [tensors.find(f"{layer}{name}.bias") for name in gate_up]
    shared_gate = tensors.find(f"{layer}{names.shared_gate}.weight")
    return ExpertWeights(
        router=tensors.values(f"{layer}{names.router}.weight"),
        gate_up=[tensors.fused(gates_and_ups(expert)) for expert in each],
        down=[tensors.fused([rows(down, expert, len(hidden))]) for expert in each],
        shared_gate=None if shared_gate is None else shared_gate.view(1, -1),
        choice_bias=tensors.find(f"{layer}{names.choice_bias}"),
        router_bias=tensors.find(f"{layer}{names.router}.bias"),
        gate_up_bias=_halves(biases, tensors.experts_are_columns),
        down_bias=tensors.find(f"{layer}{down}.bias"),
    )


def _halves(biases: Sequence[Tensor | None], interleave: bool) -> Tensor | None:
    """Return the biases of gates and, behind them, of ups; [experts, 2 * ffn]."""
    found = [each for each in biases if each is not None]
    if not found:
        return None
    return torch.cat([found[0][:, ::2], found[0][:, 1::2]] if interleave else found, 1)


def _rows_of(
    layer: str, names: Sequence[str], kind: str, spans: Sequence[tuple[int, int, int]]
) -> NamedRows:
    """Return rows start .. stop of each part, of as many as it has, in its own matrix or in one."""
    found: NamedRows = []
    before = 0
    for part, (start, stop, count) in enumerate(spans):
        if len(names) == 1:
            found.append((f"{layer}{names[0]}.{kind}", range(before + start, before + stop)))
            before += count
        else:
            found.append((f"{layer}{names[part]}.{kind}", range(start, stop)))
    return found
