"""Writes calls of the kernels' C interface to a file that `driver.cpp` replays."""

import ctypes
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from draftwerk.model.batch.batch import Pages
from draftwerk.model.checkpoint.stored_matrix import KINDS, StoredMatrix
from draftwerk.model.draft_head.head import DraftHead
from draftwerk.model.native.calls.structs import (
    LayerShape,
    RoundArrays,
    Shape,
    StateRow,
    StoredPart,
    TreeStart,
)
from draftwerk.model.native.draft_head import KIND as DRAFT_KIND
from draftwerk.model.native.draft_head import MATRICES, TREES, VECTORS
from draftwerk.model.native.library import library
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import halved, parts_of, quantised
from draftwerk.speculative.sampling import Sampling


class RecordingPool(Pool):
    """A pool whose models are made in a script too."""

    def __init__(self, pool: Pool, script: "Script") -> None:
        self._pool = pool  # it ends with the last that uses it
        self.threads, self.handle = pool.threads, pool.handle
        self.library = cast(ctypes.CDLL, RecordingLibrary(pool.library, script))


class RecordingLibrary:
    """The kernels' functions; those that a script has by the same name are written to it."""

    def __init__(self, library: ctypes.CDLL, script: "Script") -> None:
        self._library, self._script = library, script

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function, write = getattr(self._library, name), getattr(self._script, name, None)
        if write is None:
            return function

        def both(*arguments: Any) -> Any:
            write(*arguments)
            return function(*arguments)

        return both


class Script:
    """Calls in their order; every tensor float32 unless stated otherwise."""

    _embedding_sizes = (0, 0)

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")

    def close(self) -> None:
        self._file.close()

    def model_create(
        self,
        pool: int,
        shape: Shape,
        layers: "ctypes.Array[LayerShape]",
        frequencies: "ctypes.Array[ctypes.c_float]",
    ) -> None:
        self._call("m")
        self._struct(shape)
        self._bytes(bytes(layers))
        self._bytes(bytes(frequencies))
        inputs = shape.layers * shape.layer_input
        self._embedding_sizes = (shape.vocab * shape.hidden, shape.vocab * inputs)

    def model_set_matrix(
        self,
        model: int,
        layer: int,
        part: int,
        expert: int,
        data: int,
        is_bf16: bool,
        n: int,
        k: int,
        bias: int | None,
    ) -> None:
        self._call("w")
        self._ints(layer, part, expert, is_bf16, n, k)
        self._bytes(ctypes.string_at(data, n * k * (2 if is_bf16 else 4)))
        self._bias(bias, n)

    def model_set_stored(
        self,
        model: int,
        layer: int,
        part: int,
        expert: int,
        parts: "ctypes.Array[StoredPart]",
        count: int,
        k: int,
        bias: int | None,
    ) -> None:
        self._call("b")
        self._ints(layer, part, expert)
        self._parts(parts, k)
        self._bias(bias, sum(each.count for each in parts))

    def model_set_vector(self, model: int, layer: int, which: int, values: int, size: int) -> None:
        self._call("v")
        self._ints(layer, which)
        self._bytes(ctypes.string_at(values, 4 * size))

    def model_set_embedding(self, model: int, of_inputs: bool, values: int, is_bf16: bool) -> None:
        self._call("e")
        self._ints(of_inputs, is_bf16)
        size = self._embedding_sizes[of_inputs] * (2 if is_bf16 else 4)
        self._bytes(ctypes.string_at(values, size))

    def pages(self, pages: Pages) -> None:
        """Set keys, values and recurrent states, which later rounds read and write."""
        self._call("p")
        for tensor in (pages.keys, pages.values, pages.states):
            self._many(torch.empty(0) if tensor is None else tensor)

    def model_forward(self, model: int, batch: RoundArrays) -> None:
        """Run a round. Results: logits [S, vocab], states [S, hidden]."""
        self._call("f")
        self._struct(batch)
        rows = (StateRow * batch.state_row_count).from_address(batch.state_rows or 0)
        tokens, saves = batch.token_count, sum(row.saves for row in rows)
        counts: dict[str, int] = dict.fromkeys(("tokens", "positions", "slots"), tokens)
        counts |= {"row_starts": batch.row_count + 1, "kv_lengths": batch.row_count}
        counts |= {"block_tables": batch.row_count * batch.table_width, "ancestors": 2 * tokens}
        counts |= {"outputs": batch.output_count, "seen": tokens, "state_parents": tokens}
        counts |= {"state_rows": len(bytes(rows)) // 4, "state_saves": 2 * saves}
        for name, count in counts.items():
            address = getattr(batch, name)
            self._bytes(ctypes.string_at(address, 4 * count) if address else b"")

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
        self._parts(parts_of([matrix]), matrix.shape[1])
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
            parts = halved(parts) if which == 0 else parts
            self._parts(parts_of(parts), parts[0].shape[1])
        for name in VECTORS:
            self._many(getattr(head, name))
        self._struct(TREES[-1])
        self._bytes(b"".join(bytes(start) for start in starts))
        self._many(states)

    def _bias(self, bias: int | None, count: int) -> None:
        self._bytes(b"" if bias is None else ctypes.string_at(bias, 4 * count))

    def _parts(self, parts: "ctypes.Array[StoredPart]", k: int) -> None:
        self._ints(len(parts))
        for part in parts:
            self._ints(part.kind, part.count, k)
            size = library().stored_file_bytes(part.kind, k)
            rows = range(part.count)
            if part.rows:
                rows = (ctypes.c_int64 * part.count).from_address(part.rows)
            blocks = (ctypes.string_at(part.data + row * part.row_bytes, size) for row in rows)
            self._bytes(b"".join(blocks))

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
