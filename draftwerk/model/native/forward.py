"""The whole decoder as one native call, bit for bit independent of what else is in the batch."""

import ctypes
import weakref
from collections.abc import Callable, Sequence
from enum import IntEnum
from itertools import chain
from math import inf
from statistics import median
from time import perf_counter

import numpy as np
import torch
from msgspec.structs import replace
from torch import Tensor

from draftwerk.model.batch.batch import Batch, BatchState, Pages, logit_count_of
from draftwerk.model.checkpoint.config import DeltaRule, Experts, LayerKind, ModelConfig
from draftwerk.model.checkpoint.lora.lora_card import PARTS
from draftwerk.model.checkpoint.lora.lora_weights import Adapter
from draftwerk.model.checkpoint.packed_weights import WeightStore
from draftwerk.model.checkpoint.shard import Shard, whole
from draftwerk.model.checkpoint.stored_matrix import StoredMatrix
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import AnyWeights, ExpertWeights, LayerWeights, WeightMatrix
from draftwerk.model.native.build import NativeUnavailable
from draftwerk.model.native.library import (
    AdapterModule,
    LayerShape,
    PathRow,
    RoundArrays,
    Shape,
    ShardColumns,
    StateRow,
)
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import (
    KINDS,
    STORED,
    halved,
    packed_size,
    parts_of,
    quantised,
    unread,
)

STORED_FORMAT = 3
FORMATS = {"fp32": 0, "bf16": 1, "int8": STORED_FORMAT, "int4": STORED_FORMAT}
"""What weights that are not quantised can be served as."""
QUANTISED = {"int8": "Q8_0", "int4": "IQ4_NL"}
"""The types of blocks to which they are quantised: of those of their size the nearest to the
weights, by `benchmarks.format_quality --off-grid`."""
HEAD_KIND = "Q8_0"
"""Of the head then: it decides between tokens."""
KV_FORMATS = {"fp32": 0, "bf16": 1, "int8": 2}
PAGE_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.int8}
SCALE_BYTES = 4
NORMS = ("rms", "rms_rounded_once", "layer")
ACTIVATIONS = ("silu", "gelu_tanh", "relu_squared", "clamped_silu")
HEAD_NORMS = ("shared", "projection", "each")
ROTARY_ROUNDINGS = ("all", "angles", "result")
MIXERS = ("attention", "convolution", "delta")
"""In the order of the enumerations in source/forward/model.h."""
NO_EXPERTS = Experts(count=0, used=0, ffn_size=0)
NO_DELTA = DeltaRule(key_heads=0, value_heads=0, key_size=0, value_size=0, taps=0)
HIDDEN_MAX = 16384
KEY_MAX, TAPS_MAX = 256, 8
"""Of a delta rule."""
GROUP_MAX = 256
READINGS = 5


class Part(IntEnum):
    """Mirrors `Part` in source/forward/model.h."""

    QKV = 0
    OUTPUT = 1
    GATE_UP = 2
    DOWN = 3
    HEAD = 4
    EMBEDDING = 5
    ROUTER = 6
    EXPERT_GATE_UP = 7
    EXPERT_DOWN = 8


class Vector(IntEnum):
    """Mirrors `Vector` in source/forward/model.h."""

    ATTENTION_NORM = 0
    FFN_NORM = 1
    QUERY_NORM = 2
    KEY_NORM = 3
    NORM = 4
    AFTER_ATTENTION = 5
    AFTER_FFN = 6
    TAPS = 7
    SINKS = 8
    DECAY = 9
    STEP_BIAS = 10
    GATED_NORM = 11
    CHOICE_BIAS = 12


class NativeForward:
    """A `Forward` for every family on a CPU; not for two threads at once.

    `dtype` names the weights' format: fp32, bf16 (every intermediate value rounded where Hugging
    Face's bf16 model rounds it), int8 or int4 (quantised here, see `QUANTISED`), or stored:
    quantised by the file already, each part in its own type; with 8-bit activations. Matrices are
    repacked; of `weights` only an embedding that is not stored is kept.

    `kv_dtype` names the format of keys and values: as the activations, or int8, a scale a head.
    Pages are [layers, blocks, slots, KV heads, `page_width`] of `page_dtype`.

    With a `store` the packed weights are in its memory; where it has them already, matrices may be
    without data (`meta`).

    Of a `shard` the weights are those that a rank has, and pages those of its layers with all
    heads; `meeting` is the handle of where it gets the other columns, if its stage has more ranks.
    `on_layer` is told of each layer of the model once it is packed.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: AnyWeights,
        dtype: str = "bf16",
        pool: Pool | None = None,
        kv_dtype: str = "auto",
        store: WeightStore | None = None,
        shard: Shard | None = None,
        meeting: int | None = None,
        on_layer: Callable[[int], None] = lambda index: None,
    ) -> None:
        _check(config, dtype, kv_dtype)
        own = shard.layers if shard else range(config.layer_count)
        layers = (LayerShape * len(own))(*(_layer_shape(config.kind(index)) for index in own))
        kv_dtype = kv_format(dtype, kv_dtype)
        self.page_dtype, self.page_width = page_format(config, dtype, kv_dtype)
        self.dtype, self.format = dtype, _format(dtype)
        self._kind = QUANTISED.get(dtype)
        self._shard = shard or whole(config)
        config = replace(config, layer_count=len(self._shard.layers))
        self._config = config
        self._pool = pool or Pool()
        self._on_layer = on_layer
        spelt = [each for rotary in config.rotaries for each in rotary.inverse_frequencies]
        frequencies = (ctypes.c_float * len(spelt))(*spelt)
        self._library = self._pool.library
        self.handle: int = self._library.model_create(
            self._pool.handle, shape_of(config, dtype, kv_dtype), layers, frequencies
        )
        weakref.finalize(self, self._library.model_destroy, self.handle)
        if shard is not None:
            self._library.model_split(self.handle, columns_of(shard), meeting)
        self.states: Tensor | None = None
        """What the head read in the latest call, float32 [S, hidden]."""
        self._is_packed = store is not None and store.is_packed
        self._node_starts: dict[int, int] = {}
        """Of the latest batch, by a row's first token."""
        self.embedding: Tensor | None = None
        """[vocab, hidden]; None where it is stored."""
        if isinstance(weights.embedding, Tensor):
            self._set_all(weights, weights.embedding, store, dtype)
        else:
            self._set_all_stored(weights, weights.embedding, store)
        if store is not None:
            store.finish()

    def _set_all(
        self, weights: AnyWeights, embedding: Tensor, store: WeightStore | None, dtype: str
    ) -> None:
        is_bf16 = embedding.dtype != torch.float32 or dtype == "bf16"
        embedding_dtype = torch.bfloat16 if is_bf16 else torch.float32
        kind = KINDS[self._kind] if self._kind else 0
        size = self._library.model_arena_bytes(self.handle, kind, KINDS[HEAD_KIND])
        more = embedding.numel() * embedding_dtype.itemsize
        address = self._use(store, size, more)
        self._set_matrices(weights)
        # A view of a mapped file would keep all of it mapped.
        kept = torch.empty_like(embedding, dtype=embedding_dtype)
        if address and more:
            place = (ctypes.c_char * more).from_address(address + size)
            kept = torch.frombuffer(place, dtype=embedding_dtype).view(embedding.shape)
        if not self._is_packed:
            kept.copy_(embedding)
        self.embedding = kept
        self._library.model_set_embedding(self.handle, kept.data_ptr(), is_bf16)

    def _set_all_stored(
        self, weights: AnyWeights, embedding: tuple[StoredMatrix, ...], store: WeightStore | None
    ) -> None:
        """Set matrices in the file's own blocks; a tied head's rows are the embedding's."""
        matrices = [matrix for layer in weights.layers for matrix in layer.matrices]
        matrices.append(weights.lm_head)
        if weights.lm_head is not embedding:
            matrices.append(embedding)
        size = sum(packed_size(_stored(matrix)) for matrix in matrices)
        self._use(store, size + self._library.model_router_bytes(self.handle), 0)
        self._set_matrices(weights)
        if weights.lm_head is not embedding:
            self._set_matrix(0, Part.EMBEDDING, embedding)

    def _use(self, store: WeightStore | None, size: int, more: int) -> int | None:
        """Have matrices in a store's memory; returns the address of it all."""
        if store is None:
            return None
        address = store.open(size + more)
        self._is_packed = store.is_packed
        self._library.model_use_arena(self.handle, address, size, store.is_packed)
        return address

    def _set_matrices(self, weights: AnyWeights) -> None:
        for index, layer in zip(self._shard.layers, weights.layers, strict=True):
            self._set_layer(index - self._shard.layers.start, layer)
            self._on_layer(index)
        self._set_matrix(0, Part.HEAD, weights.lm_head)
        self._set_vector(0, Vector.NORM, weights.norm)

    def add_adapter(self, adapter: Adapter) -> None:
        """Add an adapter behind those there are; batches name it by its number."""
        modules = (AdapterModule * len(adapter))()
        for to, one in zip(modules, adapter, strict=True):
            to.a, to.b = one.a.data_ptr(), one.b.data_ptr()
            to.layer, to.part, to.first = one.layer, PARTS.index(one.part), one.first
            (to.rank, to.inputs), to.columns = one.a.shape, len(one.b)
            to.scale = one.scale
        self._library.model_add_adapter(self.handle, modules, len(adapter))

    def reading(self, limit_s: float = inf) -> tuple[int, float]:
        """Return the bytes of all matrices, and the milliseconds that reading them takes."""
        times: list[float] = []
        size = 0
        for _ in range(READINGS):
            begun = perf_counter()
            size = self._library.measure_stream(self.handle)
            times.append(1e3 * (perf_counter() - begun))
            if sum(times) >= 1e3 * limit_s:
                break
        return size, median(times)

    def __call__(self, batch: Batch, pages: Pages) -> Tensor:
        """Return float32 logits [S, vocab]; the batch's keys and values are in the pages."""
        return self.run_stage(batch, pages, None)

    def run_stage(self, batch: Batch, pages: Pages, hidden: Tensor | None) -> Tensor:
        """Return the logits, or before the last stage what the layers have come to [T, hidden].

        `hidden` is what the stage before has come to; without one the tokens are embedded.
        """
        self._check_pages(pages)
        outputs, logit_count = len(batch.outputs), logit_count_of(batch)
        is_last, config = self._shard.is_last, self._config
        logits = torch.empty(logit_count if is_last else 0, config.vocab_size)
        self.states = torch.empty(outputs if is_last else 0, config.hidden_size)
        arrays = _arrays(batch, pages, logits, self.states)
        state_rows = StateRows(batch, pages, config) if config.delta is not None else None
        if state_rows is not None:
            state_rows.describe(arrays)
            self._node_starts = state_rows.node_starts
        arrays.layers = config.layer_count if batch.layers is None else batch.layers
        result = logits if is_last else torch.empty(len(batch.tokens), config.hidden_size)
        if not is_last:
            arrays.hidden_out = result.data_ptr()
        if hidden is not None:
            _check_tensor("hidden", hidden, torch.float32)
            arrays.hidden_in = hidden.data_ptr()
        self._library.model_forward(self.handle, arrays)
        return result

    def advance(self, rows: Sequence[tuple[BatchState, Sequence[int]]], pages: Pages) -> None:
        """Take states of the latest batch along the nodes that were accepted."""
        arrays, kept = RoundArrays(), list[object]()
        _set_states(arrays, pages, self._config)
        paths = (PathRow * len(rows))()
        for path, (state, nodes) in zip(paths, rows, strict=True):
            first = self._node_starts[state.first]
            numbers = (ctypes.c_int32 * len(nodes))(*(first + node for node in nodes))
            wanted = (ctypes.c_int32 * (2 * len(state.saves)))(*chain.from_iterable(state.saves))
            kept += [numbers, wanted]
            path.nodes = ctypes.addressof(numbers)
            path.wanted = ctypes.addressof(wanted)
            path.count, path.saves = len(nodes), len(state.saves)
            path.target, path.position = state.target, state.start + state.count
        self._library.model_advance(self.handle, arrays, paths, len(rows))

    @property
    def hidden_size(self) -> int:
        return self._config.hidden_size

    @property
    def vocabulary(self) -> tuple[int, int]:
        """How many tokens it embeds, and how wide."""
        return self._config.vocab_size, self._config.hidden_size

    def _check_pages(self, pages: Pages) -> None:
        config = self._config
        for name, tensor in (("keys", pages.keys), ("values", pages.values)):
            _check_tensor(name, tensor, self.page_dtype)
            planes, _, _, kv_heads, width = tensor.shape
            if (planes, kv_heads, width) != (
                config.plane_count,
                config.num_kv_heads,
                self.page_width,
            ):
                raise ValueError(f"{name} are pages of another model: {tuple(tensor.shape)}")

    def _set_layer(self, index: int, layer: LayerWeights[WeightMatrix]) -> None:
        self._set_matrix(index, Part.QKV, layer.qkv, layer.qkv_bias)
        self._set_matrix(index, Part.OUTPUT, layer.output, layer.output_bias)
        if layer.gate_up is not None and layer.down is not None:
            self._set_matrix(index, Part.GATE_UP, layer.gate_up, layer.gate_up_bias)
            self._set_matrix(index, Part.DOWN, layer.down, layer.down_bias)
        if layer.experts is not None:
            self._set_experts(index, layer.experts)
        vectors = {
            Vector.ATTENTION_NORM: layer.attention_norm,
            Vector.FFN_NORM: layer.ffn_norm,
            Vector.QUERY_NORM: layer.query_norm,
            Vector.KEY_NORM: layer.key_norm,
            Vector.AFTER_ATTENTION: layer.after_attention,
            Vector.AFTER_FFN: layer.after_ffn,
            Vector.TAPS: None if layer.taps is None else layer.taps.flatten(),
            Vector.SINKS: layer.sinks,
        }
        if layer.experts is not None:
            vectors[Vector.CHOICE_BIAS] = layer.experts.choice_bias
        if (delta := layer.delta) is not None:
            vectors |= {
                Vector.DECAY: delta.decay,
                Vector.STEP_BIAS: delta.step_bias,
                Vector.GATED_NORM: delta.norm,
            }
        for which, vector in vectors.items():
            if vector is not None:
                self._set_vector(index, which, vector)

    def _set_experts(self, layer: int, experts: ExpertWeights[WeightMatrix]) -> None:
        router = experts.router
        if experts.shared_gate is not None:
            router = torch.cat([router, experts.shared_gate])
        self._set_matrix(layer, Part.ROUTER, router, experts.router_bias)
        for expert, matrix in enumerate(experts.gate_up):
            bias, _ = experts.biases(expert)
            self._set_matrix(layer, Part.EXPERT_GATE_UP, matrix, bias, expert)
        for expert, matrix in enumerate(experts.down):
            _, bias = experts.biases(expert)
            self._set_matrix(layer, Part.EXPERT_DOWN, matrix, bias, expert)

    def _set_matrix(
        self,
        layer: int,
        part: Part,
        matrix: WeightMatrix,
        bias: Tensor | None = None,
        expert: int = 0,
    ) -> None:
        if self.format == STORED_FORMAT and part is not Part.ROUTER:
            return self._set_stored(layer, part, self._blocks(matrix, part), bias, expert)
        matrix = _plain(matrix)
        is_bf16 = matrix.dtype == torch.bfloat16
        source = matrix
        if not self._is_packed:
            source = matrix.contiguous() if is_bf16 else matrix.float().contiguous()
        bias = None if bias is None else bias.float().contiguous()
        self._library.model_set_matrix(
            self.handle,
            layer,
            part,
            expert,
            None if self._is_packed else source.data_ptr(),
            is_bf16,
            *source.shape,
            None if bias is None else bias.data_ptr(),
        )

    def _blocks(self, matrix: WeightMatrix, part: Part) -> tuple[StoredMatrix, ...]:
        """Return a matrix in blocks: its own, or those to which it is quantised."""
        if self._kind is None:
            return _stored(matrix)
        matrix = _plain(matrix)
        kind = HEAD_KIND if part is Part.HEAD else self._kind
        if self._is_packed:
            return (unread(tuple(matrix.shape), kind),)
        return (quantised(matrix, kind, self._pool),)

    def _set_stored(
        self,
        layer: int,
        part: Part,
        parts: tuple[StoredMatrix, ...],
        bias: Tensor | None,
        expert: int,
    ) -> None:
        if not parts or not parts[0].shape[0]:  # another rank's
            return
        if part in (Part.GATE_UP, Part.EXPERT_GATE_UP) and self._config.graph.is_gated:
            parts = halved(parts)
        bias = None if bias is None else bias.float().contiguous()
        self._library.model_set_stored(
            self.handle,
            layer,
            part,
            expert,
            parts_of(parts),
            len(parts),
            parts[0].shape[1],
            None if bias is None else bias.data_ptr(),
        )

    def _set_vector(self, layer: int, which: Vector, values: Tensor) -> None:
        source = values.float().contiguous()
        self._library.model_set_vector(self.handle, layer, which, source.data_ptr(), len(source))


def _check(config: ModelConfig, dtype: str, kv_dtype: str) -> None:
    _format(dtype)
    if config.taps and kv_dtype == "int8":
        raise Refused("kv_dtype int8: layers that convolve keep their inputs in bf16 or fp32")
    if config.hidden_size > HIDDEN_MAX or config.num_heads // config.num_kv_heads > GROUP_MAX:
        raise NativeUnavailable("the model is too wide for the native kernels")
    rule = config.delta or NO_DELTA
    if rule.key_size > KEY_MAX or rule.taps > TAPS_MAX or rule.channels > HIDDEN_MAX * 2:
        raise NativeUnavailable("the delta rule is too wide for the native kernels")
    if config.experts is None:
        return
    is_mixed = not all(kind.has_experts for kind in config.layers)
    if (
        not config.graph.is_gated
        or config.graph.is_parallel
        or (is_mixed and config.experts.shared_ffn_size)
    ):
        raise NativeUnavailable("no native kernels for experts beside such an FFN")


def _layer_shape(kind: LayerKind) -> LayerShape:
    return LayerShape(kind.window, kind.rotary, kind.has_experts, MIXERS.index(kind.mixer))


def _format(dtype: str) -> int:
    if dtype == STORED:
        return STORED_FORMAT
    if dtype not in FORMATS:
        raise ValueError(f"dtype {dtype!r} is none of {', '.join(FORMATS)}, {STORED}")
    return FORMATS[dtype]


def _plain(matrix: WeightMatrix) -> Tensor:
    if not isinstance(matrix, Tensor):
        raise ValueError(f"a matrix of {matrix[0].kind} can only be served as it is stored")
    return matrix


def _stored(matrix: WeightMatrix) -> tuple[StoredMatrix, ...]:
    if isinstance(matrix, Tensor):
        raise ValueError(f"a matrix {tuple(matrix.shape)} is not quantised, as the others are")
    return matrix


def columns_of(shard: Shard) -> ShardColumns:
    spans = (shard.heads, shard.kv_heads, shard.hidden, shard.ffn, shard.vocab)
    return ShardColumns(*(value for span in spans for value in (span.start, len(span))))


def kv_format(dtype: str, kv_dtype: str) -> str:
    """Return the format of keys and values that "auto" comes to."""
    if kv_dtype != "auto":
        return kv_dtype
    return "fp32" if dtype == "fp32" else "bf16"


def page_format(config: ModelConfig, dtype: str, kv_dtype: str) -> tuple[torch.dtype, int]:
    """Return the pages' dtype, and how many of it a head takes."""
    kv_dtype = kv_format(dtype, kv_dtype)
    width = config.head_size + (SCALE_BYTES if kv_dtype == "int8" else 0)
    return PAGE_DTYPES[kv_dtype], width


def shape_of(config: ModelConfig, dtype: str, kv_dtype: str) -> Shape:
    graph, experts = config.graph, config.experts or NO_EXPERTS
    delta = config.delta or NO_DELTA
    multiplier = graph.embedding_multiplier
    if dtype == "bf16" and graph.rounds_embedding_multiplier:
        multiplier = float(torch.tensor(multiplier, dtype=torch.bfloat16))
    return Shape(
        vocab=config.vocab_size,
        hidden=config.hidden_size,
        layers=config.layer_count,
        heads=config.num_heads,
        kv_heads=config.num_kv_heads,
        head_size=config.head_size,
        ffn=experts.shared_ffn_size or config.ffn_size,
        format=_format(dtype),
        in_bf16=dtype == "bf16",
        kv_format=KV_FORMATS[kv_dtype],
        norm=NORMS.index(graph.norm),
        activation=ACTIVATIONS.index("clamped_silu" if graph.gate_limit else graph.activation),
        is_gated=graph.is_gated,
        is_parallel=graph.is_parallel,
        head_norm=HEAD_NORMS.index(graph.head_norm),
        norms_after_rotation=graph.norms_after_rotation,
        rotary_rounding=ROTARY_ROUNDINGS.index(graph.rotary_rounding),
        rotary_pairs=len(config.rope_inverse_frequencies),
        rotary_count=len(config.rotaries),
        experts=experts.count,
        experts_used=experts.used,
        expert_ffn=experts.ffn_size,
        experts_sigmoid=experts.scores == "sigmoid",
        experts_sum_to_one=experts.normalises,
        experts_scale=experts.weight_scale,
        shared_ffn=experts.shared_ffn_size,
        shared_is_gated=experts.shared_is_gated,
        taps=config.taps,
        delta_key_heads=delta.key_heads,
        delta_value_heads=delta.value_heads,
        delta_key_size=delta.key_size,
        delta_value_size=delta.value_size,
        delta_taps=delta.taps,
        has_output_gate=graph.has_output_gate,
        norm_epsilon=config.norm_eps,
        embedding_multiplier=multiplier,
        residual_multiplier=graph.residual_multiplier,
        logit_scale=graph.logit_scale,
        logit_softcap=graph.logit_softcap,
        attention_softcap=graph.attention_softcap,
        attention_scale=graph.attention_scale,
        gate_limit=graph.gate_limit,
        gate_slope=graph.gate_slope,
        temperature_beta=graph.temperature_beta,
        temperature_length=graph.temperature_length,
        rotary_magnitudes=tuple(rotary.magnitude for rotary in config.rotaries),
    )


def _set_states(arrays: RoundArrays, pages: Pages, config: ModelConfig) -> None:
    if pages.states is None:
        return
    _check_tensor("states", pages.states, torch.float32)
    if pages.states.shape[1] != config.state_size:
        raise ValueError(f"states are another model's: {tuple(pages.states.shape)}")
    arrays.state_slots, arrays.state_numbers = pages.states.data_ptr(), config.state_size


class StateRows:
    """The recurrent states of a batch, as the library has them."""

    def __init__(self, batch: Batch, pages: Pages, config: ModelConfig) -> None:
        """Without slots each text begins, and nothing is kept of it. Raises ValueError."""
        if not batch.states:
            raise ValueError("a batch without states")
        self._pages, self._config = pages, config
        self.node_starts: dict[int, int] = {}
        """By a row's first token, the number of its first node."""
        self._rows = (StateRow * len(batch.states))()
        parents = np.full(len(batch.tokens), -1, np.int32)
        saves: list[int] = []
        nodes = 0
        for row, state in zip(self._rows, batch.states, strict=True):
            source, target, own = state.source, state.target, state.saves
            if pages.states is None:
                source, target, own = -1, -1, ()
            row.first, row.count, row.nodes = state.first, state.count, len(state.parents)
            row.start, row.source, row.target = state.start, source, target
            row.first_save, row.saves = len(saves) // 2, len(own)
            saves += chain.from_iterable(own)
            behind = state.first + state.count
            parents[behind : behind + len(state.parents)] = state.parents
            self.node_starts[state.first] = nodes
            nodes += len(state.parents)
        self._parents, self._saves = parents, np.array(saves, np.int32)
        self._check(len(batch.tokens))

    def _check(self, tokens: int) -> None:
        slots = 0 if self._pages.states is None else len(self._pages.states)
        end = 0
        for row in self._rows:
            if row.first != end or row.count < 1:
                raise ValueError("states do not cover the tokens")
            end = row.first + row.count + row.nodes
            if not (-1 <= row.source < max(slots, 0) and -1 <= row.target < max(slots, 0)):
                raise ValueError("a state is outside its slots")
        if end != tokens or any(not 0 <= slot < slots for slot in self._saves[1::2]):
            raise ValueError("states do not cover the tokens")

    def describe(self, arrays: RoundArrays) -> None:
        """Tell the library; what it is told of lives as long as this."""
        _set_states(arrays, self._pages, self._config)
        arrays.state_row_count = len(self._rows)
        arrays.state_rows = ctypes.addressof(self._rows)
        arrays.state_parents = self._parents.ctypes.data
        arrays.state_saves = self._saves.ctypes.data


def _arrays(batch: Batch, pages: Pages, logits: Tensor, states: Tensor | None) -> RoundArrays:
    arrays = RoundArrays(
        token_count=len(batch.tokens),
        row_count=len(batch.kv_lengths),
        table_width=batch.block_tables.shape[1],
        output_count=len(batch.outputs),
        logit_count=logit_count_of(batch),
        block_count=pages.keys.shape[1],
        block_size=pages.block_size,
        keys=pages.keys.data_ptr(),
        values=pages.values.data_ptr(),
        logits=logits.data_ptr(),
        states=None if states is None else states.data_ptr(),
    )
    tokens, rows = arrays.token_count, arrays.row_count
    sizes = {"tokens": tokens, "positions": tokens, "slots": tokens, "row_starts": rows + 1}
    sizes |= {"kv_lengths": rows, "block_tables": rows, "ancestors": tokens}
    sizes |= {"outputs": arrays.output_count}
    if batch.seen is not None:
        sizes["seen"] = tokens
    if batch.adapters is not None:
        sizes["adapters"] = rows
    for name, size in sizes.items():
        tensor: Tensor = getattr(batch, name)
        _check_tensor(name, tensor, torch.int64 if name == "ancestors" else torch.int32)
        if len(tensor) != size:
            raise ValueError(f"{name} has {len(tensor)} entries, not {size}")
        setattr(arrays, name, tensor.data_ptr())
    return arrays


def _check_tensor(name: str, tensor: Tensor, dtype: torch.dtype) -> None:
    if tensor.dtype != dtype or tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise ValueError(f"{name} must be a contiguous {dtype} tensor on the CPU")
