"""Writes calls of the kernels' C interface to a file that `driver.cpp` replays."""

import ctypes
import struct
from pathlib import Path

import torch
from msgspec.structs import astuple
from torch import Tensor

from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.stored_matrix import StoredMatrix
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.draft_head.head import DraftHead
from draftwerk.model.native.draft_head import KIND as DRAFT_KIND
from draftwerk.model.native.draft_head import MATRICES, TREE, VECTORS
from draftwerk.model.native.forward import HEAD_KIND, QUANTISED, Part, Vector, shape_of
from draftwerk.model.native.library import TreeStart
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import KINDS, halved, quantised
from draftwerk.speculative.sampling.params import Sampling


class Script:
    """Calls in their order; every tensor float32 unless stated otherwise."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def close(self) -> None:
        self._file.close()

    def model(
        self, config: ModelConfig, weights: Weights, dtype: str, kv_dtype: str, pool: Pool
    ) -> None:
        """Create a model, as `NativeForward` does."""

        def set_matrix(layer: int, part: Part, matrix: Tensor, bias: Tensor | None) -> None:
            if dtype not in QUANTISED:
                return self._matrix(layer, part, matrix, bias)
            kind = HEAD_KIND if part is Part.HEAD else QUANTISED[dtype]
            parts = (quantised(matrix, kind, pool),)
            is_halved = part is Part.GATE_UP and config.graph.is_gated
            self._blocks(layer, part, halved(parts) if is_halved else parts, bias)

        self._call("m")
        self._struct(shape_of(config, dtype, kv_dtype))
        layers = [list(astuple(config.kind(index))) for index in range(config.layer_count)]
        self._many(torch.tensor(layers, dtype=torch.int32))
        self._many(torch.tensor(config.rope_inverse_frequencies))
        for index, layer in enumerate(weights.layers):
            set_matrix(index, Part.QKV, layer.qkv, layer.qkv_bias)
            set_matrix(index, Part.OUTPUT, layer.output, layer.output_bias)
            set_matrix(index, Part.GATE_UP, layer.dense[0], layer.gate_up_bias)
            set_matrix(index, Part.DOWN, layer.dense[1], layer.down_bias)
            self._vector(index, Vector.ATTENTION_NORM, layer.attention_norm)
            self._vector(index, Vector.FFN_NORM, layer.ffn_norm)
            self._vector(index, Vector.QUERY_NORM, layer.query_norm)
            self._vector(index, Vector.KEY_NORM, layer.key_norm)
        set_matrix(0, Part.HEAD, weights.lm_head, None)
        self._vector(0, Vector.NORM, weights.norm)
        embedding = weights.embedding.bfloat16() if dtype == "bf16" else weights.embedding
        self._call("e")
        self._ints(embedding.dtype == torch.bfloat16)
        self._many(embedding)

    def pages(self, pages: Pages) -> None:
        """Set keys and values, which later rounds read and write."""
        self._call("p")
        self._many(pages.keys)
        self._many(pages.values)

    def forward(self, batch: Batch, pages: Pages) -> None:
        """Run a round. Results: logits [S, vocab], states [S, hidden]."""
        self._call("f")
        for name in ("tokens", "positions", "slots", "row_starts", "kv_lengths"):
            self._many(getattr(batch, name))
        for tensor in (batch.block_tables, batch.ancestors, batch.outputs):
            self._many(tensor)
        self._many(torch.empty(0, dtype=torch.int32) if batch.seen is None else batch.seen)
        self._ints(pages.keys.shape[1], pages.block_size)

    def sample(self, logits: Tensor, sampling: Sampling, position: int) -> None:
        """Sample from a row. Results: int32 token, its logprob, 10 int32 best, theirs (float64)."""
        self._call("s")
        self._many(logits)
        self._file.write(
            struct.pack(
                "<dddiQI",
                sampling.temperature,
                sampling.top_p,
                sampling.min_p,
                sampling.top_k,
                sampling.seed,
                position,
            )
        )

    def stored(self, matrix: StoredMatrix, inputs: Tensor) -> None:
        """Multiply with stored blocks. Results: products [rows, columns], values [columns, k]."""
        self._call("q")
        self._part(matrix)
        self._many(inputs)

    def quantise(self, matrix: Tensor, kind: str) -> None:
        """Round a matrix to blocks. Results: these."""
        self._call("r")
        self._ints(KINDS[kind], *matrix.shape)
        self._many(matrix)

    def draft(
        self,
        head: DraftHead,
        embedding: Tensor,
        target_head: Tensor,
        states: Tensor,
        starts: list[TreeStart],
        pool: Pool,
    ) -> None:
        """Build draft trees. Results: int32 nodes [rows, slots, fields]."""
        self._call("d")
        self._ints(embedding.shape[1], head.down.shape[1])
        self._many(head.vocabulary)
        self._many(embedding)
        matrices = [getattr(head, name) for name in MATRICES] + [target_head[head.vocabulary]]
        for which, matrix in enumerate(matrices):
            parts = (quantised(matrix, DRAFT_KIND, pool),)
            self._parts(halved(parts) if which == 0 else parts)
        for name in VECTORS:
            self._many(getattr(head, name))
        self._struct(TREE)
        self._bytes(b"".join(bytes(start) for start in starts))
        self._many(states)

    def _matrix(self, layer: int, part: Part, matrix: Tensor, bias: Tensor | None) -> None:
        self._call("w")
        self._ints(layer, part, matrix.dtype == torch.bfloat16, *matrix.shape)
        self._many(matrix)
        self._many(torch.empty(0) if bias is None else bias)

    def _blocks(
        self, layer: int, part: Part, parts: tuple[StoredMatrix, ...], bias: Tensor | None
    ) -> None:
        self._call("b")
        self._ints(layer, part)
        self._parts(parts)
        self._many(torch.empty(0) if bias is None else bias)

    def _parts(self, parts: tuple[StoredMatrix, ...]) -> None:
        self._ints(len(parts))
        for part in parts:
            self._part(part)

    def _part(self, part: StoredMatrix) -> None:
        self._ints(KINDS[part.kind], *part.shape)
        data = part.data if part.rows is None else part.data[part.rows]
        self._bytes(data.tobytes())

    def _vector(self, layer: int, which: Vector, values: Tensor | None) -> None:
        if values is not None:
            self._call("v")
            self._ints(layer, which)
            self._many(values)

    def _call(self, letter: str) -> None:
        self._file.write(letter.encode())

    def _ints(self, *values: int) -> None:
        self._file.write(struct.pack(f"<{len(values)}i", *values))

    def _struct(self, value: ctypes.Structure) -> None:
        self._bytes(bytes(value))

    def _many(self, tensor: Tensor) -> None:
        flat = tensor.contiguous().flatten()
        self._bytes(flat.view(torch.uint8).numpy().tobytes() if len(flat) else b"")

    def _bytes(self, data: bytes) -> None:
        self._file.write(struct.pack("<q", len(data)) + data)
