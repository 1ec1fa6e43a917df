"""The whole decoder as one native call, bit for bit independent of what else is in the batch."""

import ctypes
import weakref
from collections.abc import Callable, Sequence
from enum import IntEnum
from itertools import chain
from math import inf
from statistics import median
from time import perf_counter

import torch
from msgspec.structs import replace
from torch import Tensor

from draftwerk.model.batch.batch import Batch, BatchState, Pages, logit_count_of
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.lora.lora_card import PARTS
from draftwerk.model.checkpoint.lora.lora_weights import Adapter
from draftwerk.model.checkpoint.packed_weights import WeightStore
from draftwerk.model.checkpoint.shard import Shard, whole
from draftwerk.model.checkpoint.stored_matrix import StoredMatrix
from draftwerk.model.checkpoint.weights import AnyWeights, ExpertWeights, LayerWeights, WeightMatrix
from draftwerk.model.native.calls.native_shape import (
    HEAD_KIND,
    QUANTISED,
    STORED_FORMAT,
    check_model,
    columns_of,
    format_of,
    kv_format,
    layer_shape,
    page_format,
    shape_of,
)
from draftwerk.model.native.calls.round_arrays import StateRows, arrays_of, check_tensor, set_states
from draftwerk.model.native.library import (
    AdapterModule,
    LayerShape,
    PathRow,
    RoundArrays,
)
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import (
    KINDS,
    halved,
    packed_size,
    parts_of,
    quantised,
    unread,
)

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
        check_model(config, dtype, kv_dtype)
        own = shard.layers if shard else range(config.layer_count)
        layers = (LayerShape * len(own))(*(layer_shape(config.kind(index)) for index in own))
        kv_dtype = kv_format(dtype, kv_dtype)
        self.page_dtype, self.page_width = page_format(config, dtype, kv_dtype)
        self.dtype, self.format = dtype, format_of(dtype)
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
        arrays = arrays_of(batch, pages, logits, self.states)
        state_rows = StateRows(batch, pages, config) if config.delta is not None else None
        if state_rows is not None:
            state_rows.describe(arrays)
            self._node_starts = state_rows.node_starts
        arrays.layers = config.layer_count if batch.layers is None else batch.layers
        result = logits if is_last else torch.empty(len(batch.tokens), config.hidden_size)
        if not is_last:
            arrays.hidden_out = result.data_ptr()
        if hidden is not None:
            check_tensor("hidden", hidden, torch.float32)
            arrays.hidden_in = hidden.data_ptr()
        self._library.model_forward(self.handle, arrays)
        return result

    def advance(self, rows: Sequence[tuple[BatchState, Sequence[int]]], pages: Pages) -> None:
        """Take states of the latest batch along the nodes that were accepted."""
        arrays, kept = RoundArrays(), list[object]()
        set_states(arrays, pages, self._config)
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
            check_tensor(name, tensor, self.page_dtype)
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


def _plain(matrix: WeightMatrix) -> Tensor:
    if not isinstance(matrix, Tensor):
        raise ValueError(f"a matrix of {matrix[0].kind} can only be served as it is stored")
    return matrix


def _stored(matrix: WeightMatrix) -> tuple[StoredMatrix, ...]:
    if isinstance(matrix, Tensor):
        raise ValueError(f"a matrix {tuple(matrix.shape)} is not quantised, as the others are")
    return matrix
