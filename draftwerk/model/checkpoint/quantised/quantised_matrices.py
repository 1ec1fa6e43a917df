"""The tensors of a quantised checkpoint: matrices as blocks, each made when it is asked for."""

from typing import Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from draftwerk.model.checkpoint.files.shards import StoredTensor
from draftwerk.model.checkpoint.quantised.group_blocks import (
    ByteRows,
    ScaleRows,
    byte_blocks,
    check_numbers,
    fp4_blocks,
    nibble_blocks,
)
from draftwerk.model.checkpoint.quantised.scheme import Scheme
from draftwerk.model.checkpoint.quantised.scheme_tensors import (
    MAIN,
    WEIGHT,
    ZERO_POINT,
    collapsed,
    kind_of,
    quantised_names,
    scale_name,
)
from draftwerk.model.checkpoint.stored_matrix import StoredMatrix
from draftwerk.model.checkpoint.unsupported import Refused


class Read(Protocol):
    """Returns a tensor, or one expert's matrix of those of all."""

    def __call__(self, name: str, expert: int | None = None, /) -> Tensor: ...


NUMBERS = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
AWQ_ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""Which nibble of a word has column 0, 1, ..."""
SYMMETRIC_ZERO = 8


class QuantisedMatrices:
    """Matrices by name, as blocks that have the same values."""

    def __init__(self, scheme: Scheme, stored: dict[str, StoredTensor], read: Read) -> None:
        self.scheme = scheme
        self.inventory, _ = collapsed(scheme, stored)
        """The tensors as the config calls for them."""
        self._names = frozenset(quantised_names(scheme, stored))
        self._stored = stored
        self._read = read

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def blocks(self, name: str, rows: range, *, is_read: bool = True) -> StoredMatrix:
        """Return rows of a matrix; of one that is not quantised its numbers as they are.

        Without `is_read` its bytes are any.
        """
        shape = (len(rows), self.inventory[name].shape[1])
        if name not in self._names:
            values = self._read(name)[rows.start : rows.stop].contiguous()
            return StoredMatrix(NUMBERS[values.dtype], shape, _bytes(values))
        kind, size = kind_of(self.scheme, name, self.inventory[name].shape)
        if is_read:
            self._check_zero_point(name.removesuffix(WEIGHT))
            return StoredMatrix(kind, shape, self._blocks(name, rows, size))
        inside = size // 2 if self.scheme.layout in MAIN else size
        block = inside + (1 if self.scheme.layout == "mxfp4" else 4)
        unread = np.empty((len(rows), shape[1] // size * block), np.uint8)
        return StoredMatrix(kind, shape, unread)

    def _blocks(self, name: str, rows: range, size: int) -> ByteRows:
        prefix, span = name.removesuffix(WEIGHT), slice(rows.start, rows.stop)
        if self.scheme.layout not in MAIN:
            values = _bytes(self._read(name)[span].contiguous())
            if self.scheme.layout == "fp8":
                check_numbers(name, values)
            return byte_blocks(values, self._row_scales(prefix, rows), size)
        if self.scheme.layout == "mxfp4":
            expert, within = within_expert(self.inventory[name].shape[2], rows)
            pairs, scales = (self._read(prefix + end, expert) for end in (".blocks", ".scales"))
            return fp4_blocks(name, *(each[within].numpy() for each in (pairs, scales)))
        self._check_order(prefix)
        of = {"gptq": self._gptq, "awq": self._awq, "packed": self._packed}[self.scheme.layout]
        return nibble_blocks(name, *of(prefix, span), size)

    def _gptq(self, prefix: str, span: slice) -> tuple[ByteRows, ScaleRows, ByteRows]:
        words = self._read(prefix + ".qweight")[:, span].T.contiguous()
        return _bytes(words), *self._column_scales(prefix, span, range(8))

    def _awq(self, prefix: str, span: slice) -> tuple[ByteRows, ScaleRows, ByteRows]:
        columns = _nibbles(self._read(prefix + ".qweight"), AWQ_ORDER)[:, span]
        values = np.ascontiguousarray(columns.T)
        pairs = values[:, ::2] | values[:, 1::2] << np.uint8(4)
        return pairs.astype(np.uint8), *self._column_scales(prefix, span, AWQ_ORDER)

    def _packed(self, prefix: str, span: slice) -> tuple[ByteRows, ScaleRows, ByteRows]:
        words = self._read(prefix + ".weight_packed")[span].contiguous()
        scales = _floats(self._read(prefix + ".weight_scale")[span])
        zeros = np.full(scales.shape, SYMMETRIC_ZERO, np.uint8)
        if not self.scheme.is_symmetric:
            packed = self._read(prefix + ".weight_zero_point").T.contiguous()
            zeros = np.ascontiguousarray(_nibbles(packed, range(8))[:, span].T)
        return _bytes(words), scales, zeros

    def _column_scales(
        self, prefix: str, span: slice, order: range | tuple[int, ...]
    ) -> tuple[ScaleRows, ByteRows]:
        """Return scales and zeros [rows, groups] of what is stored [groups, rows]."""
        scales = _floats(self._read(prefix + ".scales")[:, span].T)
        zeros = _nibbles(self._read(prefix + ".qzeros"), order)[:, span].T
        zeros = np.ascontiguousarray(zeros)
        if self.scheme.is_symmetric:
            return scales, _symmetric_zeros(prefix, zeros)
        return scales, zeros + np.uint8(self.scheme.zero_offset)

    def _row_scales(self, prefix: str, rows: range) -> ScaleRows:
        scales = _floats(self._read(scale_name(self.scheme, prefix, self._stored)))
        if self.scheme.column_block:
            return scales[np.arange(rows.start, rows.stop) // self.scheme.column_block]
        if scales.size == 1:
            return np.full((len(rows), 1), scales.reshape(-1)[0], np.float32)
        return scales.reshape(len(scales), -1)[rows.start : rows.stop]

    def _check_zero_point(self, prefix: str) -> None:
        """Refuse one of a matrix that is said to have none, unless it is 0."""
        name = prefix + ZERO_POINT
        is_one = self.scheme.is_symmetric and name in self._stored
        if is_one and self._read(name).count_nonzero():
            raise Refused(f"{name}: it is not 0, which contradicts symmetric")

    def _check_order(self, prefix: str) -> None:
        """Refuse inputs that are not in the order of their groups."""
        for name in (prefix + ".g_idx", prefix + ".weight_g_idx"):
            if name in self._stored and self.scheme.group != -1:
                found = self._read(name)
                if not torch.equal(found.long(), torch.arange(len(found)) // self.scheme.group):
                    raise Refused(
                        f"{name}: inputs in another order than their groups (desc_act) are not "
                        "supported; take a checkpoint without, or a GGUF"
                    )


def _symmetric_zeros(prefix: str, zeros: ByteRows) -> ByteRows:
    """Return zeros of 8, as kernels that know of the symmetry have them.

    They are stored as 8, or lessened by 1, and some writers do not tell which. Raises Refused for
    any other.
    """
    if not np.isin(zeros, (SYMMETRIC_ZERO - 1, SYMMETRIC_ZERO)).all():
        raise Refused(f"{prefix}.qzeros: a zero is not {SYMMETRIC_ZERO}, which contradicts sym")
    return np.full_like(zeros, SYMMETRIC_ZERO)


def within_expert(height: int, rows: range) -> tuple[int, slice]:
    """Return whose rows they are, of experts one above the other, and which of its rows."""
    expert, first = divmod(rows.start, height)
    return expert, slice(first, first + rows.stop - rows.start, rows.step)


def _nibbles(words: Tensor, order: range | tuple[int, ...]) -> ByteRows:
    """Return the nibbles [n, 8 m] of words [n, m]; `order` says which one comes where."""
    shifts = np.array([4 * each for each in order], np.uint32)
    found = words.contiguous().numpy().view(np.uint32)[..., None] >> shifts & np.uint32(15)
    return found.astype(np.uint8).reshape(len(found), -1)


def _bytes(values: Tensor) -> ByteRows:
    """Return rows [n, bytes a row]."""
    return cast(NDArray[np.uint8], values.view(torch.uint8).numpy()).reshape(len(values), -1)


def _floats(values: Tensor) -> ScaleRows:
    return np.ascontiguousarray(values.float().numpy())
