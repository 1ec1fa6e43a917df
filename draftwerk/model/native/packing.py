"""The weights of a model, handed to the kernels that repack them."""

import ctypes
from collections.abc import Callable

import torch
from torch import Tensor

from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.packed_weights import WeightStore
from draftwerk.model.checkpoint.shard import Shard
from draftwerk.model.checkpoint.stored_matrix import KINDS, StoredMatrix
from draftwerk.model.checkpoint.weights import (
    AnyWeights,
    ExpertWeights,
    LayerEmbeddings,
    LayerWeights,
    WeightMatrix,
)
from draftwerk.model.native.calls.declarations import enumerated
from draftwerk.model.native.native_shape import HEAD_KIND, QUANTISED, STORED_FORMAT, format_of
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import halved, packed_size, parts_of, quantised, unread

PARTS = enumerated("forward/model.h", "Part")
VECTORS = enumerated("forward/model.h", "Vector")
LAYER_VECTORS = (
    *("attention_norm", "ffn_norm", "query_norm", "key_norm", "after_attention", "after_ffn"),
    *("taps", "sinks", "value_norm", "scalar"),
)
"""Fields of `LayerWeights` that the kernels call the same."""


class Packing:
    """Weights on their way to the kernels, whose model `handle` names.

    With a `store` the packed weights are in its memory; where it has them already, matrices may be
    without data (`meta`). Of a `shard` they are those that a rank has. `on_layer` is told of each
    layer of the model once it is packed.
    """

    def __init__(
        self,
        handle: int,
        pool: Pool,
        config: ModelConfig,
        dtype: str,
        shard: Shard,
        store: WeightStore | None,
        on_layer: Callable[[int], None],
    ) -> None:
        self._handle = handle
        self._pool = pool
        self._library = pool.library
        self._config = config
        self._shard = shard
        self._on_layer = on_layer
        self._dtype, self._format = dtype, format_of(dtype)
        self._kind = QUANTISED.get(dtype)
        self._store = store
        self._is_packed = store is not None and store.is_packed
        self.kept: Tensor | None = None
        """What the kernels read where it is: embeddings that layers have of their own."""

    def pack(self, weights: AnyWeights) -> Tensor | None:
        """Have all weights packed; returns the embedding [vocab, hidden] unless it is stored."""
        embedding = None
        if isinstance(weights.embedding, Tensor):
            embedding = self._set_all(weights, weights.embedding)
        else:
            self._set_all_stored(weights, weights.embedding)
        if self._store is not None:
            self._store.finish()
        return embedding

    def _set_all(self, weights: AnyWeights, embedding: Tensor) -> Tensor:
        is_bf16 = embedding.dtype != torch.float32 or self._dtype == "bf16"
        embedding_dtype = torch.bfloat16 if is_bf16 else torch.float32
        kind = KINDS[self._kind] if self._kind else 0
        size = self._library.model_arena_bytes(self._handle, kind, KINDS[HEAD_KIND])
        more = embedding.numel() * embedding_dtype.itemsize
        address = self._use(size, more)
        self._set_matrices(weights)
        if self._store is not None:
            self._store.release(self._library.model_arena_used(self._handle), size)
        # A view of a mapped file would keep all of it mapped.
        kept = torch.empty_like(embedding, dtype=embedding_dtype)
        if address and more:
            place = (ctypes.c_char * more).from_address(address + size)
            kept = torch.frombuffer(place, dtype=embedding_dtype).view(embedding.shape)
        if not self._is_packed:
            kept.copy_(embedding)
        self._library.model_set_embedding(self._handle, False, kept.data_ptr(), is_bf16)
        return kept

    def _set_all_stored(self, weights: AnyWeights, embedding: tuple[StoredMatrix, ...]) -> None:
        """Set matrices in the file's own blocks; a tied head's rows are the embedding's."""
        matrices = [matrix for layer in weights.layers for matrix in layer.matrices]
        matrices.append(weights.lm_head)
        if weights.lm_head is not embedding:
            matrices.append(embedding)
        if weights.inputs is not None:
            matrices += [weights.inputs.embedding, weights.inputs.projection]
        size = sum(packed_size(_stored(matrix)) for matrix in matrices)
        self._use(size + self._library.model_router_bytes(self._handle), 0)
        self._set_matrices(weights)
        if weights.lm_head is not embedding:
            self._set_matrix(0, "embedding", embedding)

    def _use(self, size: int, more: int) -> int | None:
        """Have matrices in the store's memory; returns the address of it all."""
        if self._store is None:
            return None
        address = self._store.open(size + more)
        self._is_packed = self._store.is_packed
        self._library.model_use_arena(self._handle, address, size, self._is_packed)
        return address

    def _set_matrices(self, weights: AnyWeights) -> None:
        for index, layer in zip(self._shard.layers, weights.layers, strict=True):
            self._set_layer(index - self._shard.layers.start, layer)
            self._on_layer(index)
        if weights.inputs is not None and self._config.graph.per_layer_size:
            self._set_inputs(weights.inputs)
        self._set_matrix(0, "head", weights.lm_head)
        self._set_vector(0, "norm", weights.norm)

    def _set_layer(self, index: int, layer: LayerWeights[WeightMatrix]) -> None:
        self._set_matrix(index, "qkv", layer.qkv, layer.qkv_bias)
        self._set_matrix(index, "output", layer.output, layer.output_bias)
        if layer.gate_up is not None and layer.down is not None:
            self._set_matrix(index, "gate_up", layer.gate_up, layer.gate_up_bias)
            self._set_matrix(index, "down", layer.down, layer.down_bias)
        if layer.experts is not None:
            self._set_experts(index, layer.experts)
        vectors: dict[str, Tensor | None] = {name: getattr(layer, name) for name in LAYER_VECTORS}
        if layer.input is not None and self._config.graph.per_layer_size:
            self._set_matrix(index, "input_gate", layer.input.gate)
            self._set_matrix(index, "input_output", layer.input.output)
            vectors["after_input"] = layer.input.norm
        if layer.experts is not None:
            vectors |= {
                "choice_bias": layer.experts.choice_bias,
                "expert_norm": layer.experts.norm,
                "after_experts": layer.experts.after,
                "after_dense": layer.experts.after_dense,
                "router_norm": layer.experts.router_norm,
                "expert_scales": layer.experts.scales,
            }
        if (own := layer.recurrent) is not None:
            vectors |= {
                "decay": own.decay,
                "step_bias": own.step_bias,
                "gated_norm": own.norm,
                "skip": own.skip,
            }
        for which, vector in vectors.items():
            if vector is not None:
                self._set_vector(index, which, vector)

    def _set_inputs(self, inputs: LayerEmbeddings[WeightMatrix]) -> None:
        self._set_matrix(0, "input_projection", inputs.projection)
        self._set_vector(0, "input_norm", inputs.norm)
        if not isinstance(inputs.embedding, Tensor):
            return self._set_matrix(0, "input_embedding", inputs.embedding)
        # Of a large table a few rows are read: it stays in its file, if it can.
        is_bf16 = inputs.embedding.dtype != torch.float32 or self._dtype == "bf16"
        self.kept = inputs.embedding.to(torch.bfloat16 if is_bf16 else torch.float32).contiguous()
        self._library.model_set_embedding(self._handle, True, self.kept.data_ptr(), is_bf16)

    def _set_experts(self, layer: int, experts: ExpertWeights[WeightMatrix]) -> None:
        router = experts.router
        if experts.shared_gate is not None:
            router = torch.cat([router, experts.shared_gate])
        self._set_matrix(layer, "router", router, experts.router_bias)
        for expert, matrix in enumerate(experts.gate_up):
            bias, _ = experts.biases(expert)
            self._set_matrix(layer, "expert_gate_up", matrix, bias, expert)
        for expert, matrix in enumerate(experts.down):
            _, bias = experts.biases(expert)
            self._set_matrix(layer, "expert_down", matrix, bias, expert)

    def _set_matrix(
        self,
        layer: int,
        part: str,
        matrix: WeightMatrix,
        bias: Tensor | None = None,
        expert: int = 0,
    ) -> None:
        if self._format == STORED_FORMAT and part != "router":
            return self._set_stored(layer, part, self._blocks(matrix, part), bias, expert)
        matrix = _plain(matrix)
        is_bf16 = matrix.dtype == torch.bfloat16
        source = matrix
        if not self._is_packed:
            source = matrix.contiguous() if is_bf16 else matrix.float().contiguous()
        bias = None if bias is None else bias.float().contiguous()
        self._library.model_set_matrix(
            self._handle,
            layer,
            PARTS.index(part),
            expert,
            None if self._is_packed else source.data_ptr(),
            is_bf16,
            *source.shape,
            None if bias is None else bias.data_ptr(),
        )

    def _blocks(self, matrix: WeightMatrix, part: str) -> tuple[StoredMatrix, ...]:
        """Return a matrix in blocks: its own, or those to which it is quantised."""
        if self._kind is None:
            return _stored(matrix)
        matrix = _plain(matrix)
        kind = HEAD_KIND if part == "head" else self._kind
        if self._is_packed:
            return (unread(tuple(matrix.shape), kind),)
        return (quantised(matrix, kind, self._pool),)

    def _set_stored(
        self,
        layer: int,
        part: str,
        parts: tuple[StoredMatrix, ...],
        bias: Tensor | None,
        expert: int,
    ) -> None:
        if not parts or not parts[0].shape[0]:  # another rank's
            return
        if part in ("gate_up", "expert_gate_up") and self._config.graph.is_gated:
            parts = halved(parts)
        bias = None if bias is None else bias.float().contiguous()
        self._library.model_set_stored(
            self._handle,
            layer,
            PARTS.index(part),
            expert,
            parts_of(parts),
            len(parts),
            parts[0].shape[1],
            None if bias is None else bias.data_ptr(),
        )

    def _set_vector(self, layer: int, which: str, values: Tensor) -> None:
        source, number = values.float().flatten().contiguous(), VECTORS.index(which)
        self._library.model_set_vector(self._handle, layer, number, source.data_ptr(), len(source))


def _plain(matrix: WeightMatrix) -> Tensor:
    if not isinstance(matrix, Tensor):
        raise ValueError(f"a matrix of {matrix[0].kind} can only be served as it is stored")
    return matrix


def _stored(matrix: WeightMatrix) -> tuple[StoredMatrix, ...]:
    if isinstance(matrix, Tensor):
        raise ValueError(f"a matrix {tuple(matrix.shape)} is not quantised, as the others are")
    return matrix
