"""A GGUF's tensors: as views of the mapped file, or dequantised as they are asked for.

Dequantised weights are rounded to bf16, whichever way they are computed with: these are the model
that `--dtype bf16`, `fp32`, `int8` and `int4` start from.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from mmap import ACCESS_READ, MADV_DONTNEED, mmap
from pathlib import Path
from threading import Event, Thread

import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray
from torch import Tensor

from draftwerk.model.checkpoint.files.byte_progress import ByteProgress
from draftwerk.model.checkpoint.gguf_card import CardTensor, GgufCard
from draftwerk.model.checkpoint.quantised.group_blocks import block_values
from draftwerk.model.checkpoint.stored_matrix import GROUP_KINDS, StoredMatrix
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.speculative.protocol.frames import OnProgress

DROPPED_S = 0.05
"""Between two times that pages are given back: some tens of megabytes are read meanwhile."""
Dequantise = Callable[[StoredMatrix], Tensor]


class GgufFiles:
    """The mapped files of a card, and how much of them was read."""

    def __init__(self, card: GgufCard, progress: OnProgress = lambda _: None) -> None:
        self.card = card
        self._maps = [_mapped(Path(path)) for path in card.paths]
        self._data = [np.frombuffer(each, np.uint8) for each in self._maps]
        total = sum(tensor.size for tensor in card.tensors.values())
        self._progress = ByteProgress(progress, f"loading {card.name}", total)

    def rows(self, tensor: CardTensor) -> NDArray[np.uint8]:
        """Return a tensor's rows [rows, bytes a row]; a vector has one.

        Raises Refused if its file was written meanwhile: of one that is cut, mapped pages that are
        gone end the process without a word.
        """
        self.card.check_unchanged()
        count = tensor.shape[0] if len(tensor.shape) > 1 else 1
        end = tensor.begin + tensor.size
        return self._data[tensor.file][tensor.begin : end].reshape(count, -1)

    def layer_done(self, index: int) -> None:
        """Count a layer as read."""
        prefix = f"model.layers.{index}."
        tensors = self.card.tensors
        self._progress.add(sum(tensors[name].size for name in tensors if name.startswith(prefix)))

    @contextmanager
    def being_read(self) -> Iterator[None]:
        """Give pages back while they are read, so that the file's bytes are in memory once.

        Raises Refused at the end if a file was written meanwhile.
        """
        done = Event()

        def drop() -> None:
            while not done.wait(DROPPED_S):
                self._drop()

        dropping = Thread(target=drop, daemon=True)
        dropping.start()
        try:
            yield
        finally:
            done.set()
            dropping.join()
            self._drop()
        self._progress.finish()
        self.card.check_unchanged()

    def _drop(self) -> None:
        """Unmap what was read; what is read again comes from the system's cache."""
        for each in self._maps:
            each.madvise(MADV_DONTNEED)


def _mapped(path: Path) -> mmap:
    try:
        with path.open("rb") as file:
            return mmap(file.fileno(), 0, access=ACCESS_READ)
    except (OSError, ValueError) as error:
        raise Refused(f"{path}: {error}") from error


def source_rows(tensor: CardTensor) -> NDArray[np.int64] | None:
    """Return which row of the file each row is; None where the order is the same."""
    if not tensor.heads:
        return None
    size = tensor.shape[0] // tensor.heads
    return halves_of_neighbours(tensor.heads, size, tensor.rotary_size).numpy()


def halves_of_neighbours(heads: int, size: int, rotary_size: int) -> Tensor:
    """Return the order of heads' rows by which dimension i turns with i + rotary_size / 2.

    They are pairs (0, 1), (2, 3), ...; dimensions behind `rotary_size` stay.
    """
    head = torch.arange(size)
    first = torch.cat([head[0:rotary_size:2], head[1:rotary_size:2], head[rotary_size:]])
    return (size * torch.arange(heads)[:, None] + first).flatten()


def stored_rows(files: GgufFiles, tensor: CardTensor, rows: range) -> StoredMatrix:
    """Return some rows of a matrix in the file's own blocks."""
    data, order = files.rows(tensor), source_rows(tensor)
    shape = (len(rows), tensor.shape[1])
    span = slice(rows.start, rows.stop)
    if order is None:
        return StoredMatrix(tensor.kind, shape, data[span])
    return StoredMatrix(tensor.kind, shape, data, np.ascontiguousarray(order[span]))


def tensor_values(
    files: GgufFiles,
    tensor: CardTensor,
    rows: range | None = None,
    dequantise: Dequantise | None = None,
) -> Tensor:
    """Return a tensor in float32, or some of a matrix's rows."""
    if len(tensor.shape) == 1:
        vector = StoredMatrix(tensor.kind, (1, *tensor.shape), files.rows(tensor))
        values, order = plain_values(vector).reshape(-1), source_rows(tensor)
        return values if order is None else values[torch.from_numpy(order)]
    matrix = stored_rows(files, tensor, range(tensor.shape[0]) if rows is None else rows)
    return (dequantise or plain_values)(matrix)


def plain_values(matrix: StoredMatrix) -> Tensor:
    """Return the values [rows, columns] in float32, of a GGUF's types by gguf's own library."""
    data = matrix.data if matrix.rows is None else matrix.data[matrix.rows]
    if matrix.kind in GROUP_KINDS:
        return torch.from_numpy(block_values(matrix.kind, np.ascontiguousarray(data)))
    values = dequantize(np.ascontiguousarray(data), GGMLQuantizationType[matrix.kind])
    return torch.from_numpy(values.astype(np.float32).reshape(matrix.shape))
