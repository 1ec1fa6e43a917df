"""A GGUF file's header: metadata and the table of tensors, every length checked before it is used.

    "GGUF" version | counts | key, type, value ... | name, sizes, type, offset ... | padding | data

Numbers are little-endian. A fault is told with the file, what was being read, and its byte.
Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import struct
from collections.abc import Callable
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

from draftwerk.model.checkpoint.unsupported import Refused

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DIMENSIONS_MAX = 4
ALIGNMENT_KEY, ALIGNMENT = "general.alignment", 32
NUMBERS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 7: "?"}
NUMBERS |= {10: "<u8", 11: "<i8", 12: "<f8"}
"""Types of metadata, and what numpy calls them."""
STRING, ARRAY = 8, 9
STRING_BYTES_MIN = 8
"""The least bytes of a string: its length."""
LENGTH = struct.Struct("<Q")
WORD = struct.Struct("<I")


class GgufTensor(NamedTuple):
    """A tensor as its file has it."""

    path: Path
    name: str
    kind: str
    """GGUF's name of its type: F32, Q4_K, ..."""
    shape: tuple[int, ...]
    """Rows first, as numpy has it; a row is contiguous."""
    begin: int
    """Byte of the file at which it begins."""
    size: int
    """Bytes."""


class GgufHeader(NamedTuple):
    """The header of a file."""

    path: Path
    fields: dict[str, Any]
    """Metadata by its keys."""
    kinds: dict[str, tuple[int, ...]]
    """The type of each field; of a list also that of what it holds."""
    tensors: dict[str, GgufTensor]


def read_gguf_header(path: Path) -> GgufHeader:
    """Return a file's metadata and tensors. Raises Refused, naming what is amiss and where."""
    try:
        size = path.stat().st_size
        if size == 0:
            raise Refused(f"{path}: not a GGUF file: it is empty")
        with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            return _HeaderReader(path, data).read()
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error


class _HeaderReader:
    """A header being read: the place in the file, and what is read there."""

    def __init__(self, path: Path, data: mmap) -> None:
        self.path = path
        self.data = data
        self.at = 0
        self.subject = "the GGUF header"
        self.kinds: dict[str, tuple[int, ...]] = {}

    def read(self) -> GgufHeader:
        if self.data[:4] != MAGIC:
            raise Refused(f"{self.path}: not a GGUF file: it begins with {self.data[:4]!r}")
        self.take(4)
        self._check_version(self.number(WORD))
        tensor_count, field_count = self.number(LENGTH), self.number(LENGTH)
        fields = self._fields(field_count)
        found = [self._entry() for _ in range(self._counted(tensor_count, 24, "tensors"))]
        tensors = self._placed(found, self._alignment(fields))
        return GgufHeader(self.path, fields, self.kinds, tensors)

    def refuse(self, reason: str, at: int | None = None) -> NoReturn:
        where = self.at if at is None else at
        raise Refused(f"{self.path}: {self.subject} at byte {where}: {reason}")

    def take(self, size: int) -> bytes:
        """Return so many bytes and go on behind them."""
        if size > len(self.data) - self.at:
            self.refuse(
                f"it takes {size} bytes and the file ends at byte {len(self.data)}: "
                "cut short, or damaged"
            )
        found = self.data[self.at : self.at + size]
        self.at += size
        return found

    def number(self, form: struct.Struct) -> int:
        return form.unpack(self.take(form.size))[0]

    def text(self) -> str:
        begin, raw = self.at, self.take(self.number(LENGTH))
        try:
            return raw.decode()
        except UnicodeDecodeError:
            self.refuse("a string is no UTF-8: damaged", begin)

    def _check_version(self, version: int) -> None:
        if version & 0xFFFF == 0:
            raise Refused(f"{self.path}: a big-endian GGUF is not supported")
        if version not in VERSIONS:
            raise Refused(f"{self.path}: GGUF version {version} is not supported (only 2 and 3)")

    def _counted(self, count: int, least: int, what: str) -> int:
        """Return a count of things that take at least so many bytes each."""
        if count * least > len(self.data) - self.at:
            self.refuse(f"{count} {what} do not fit into the file: cut short, or damaged")
        return count

    def _fields(self, count: int) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for _ in range(self._counted(count, 13, "fields of metadata")):
            self.subject = f"metadata field {len(fields)}"
            begin, key = self.at, self.text()
            self.subject = f"metadata field {key!r}"
            if key in fields:
                self.refuse("it comes twice", begin)
            kind = self.number(WORD)
            inner = (self.number(WORD),) if kind == ARRAY else ()
            self.kinds[key] = (kind, *inner)
            fields[key] = self._array(*inner) if inner else self._value(kind)
        self.subject = "the table of tensors"
        return fields

    def _value(self, kind: int) -> Any:
        return self.text() if kind == STRING else self._numbers(kind, 1)[0]

    def _array(self, kind: int) -> list[Any]:
        count = self.number(LENGTH)
        if kind == STRING:
            return self._texts(self._counted(count, STRING_BYTES_MIN, "strings"))
        return self._numbers(kind, count)

    def _numbers(self, kind: int, count: int) -> list[Any]:
        if kind not in NUMBERS:
            self.refuse(f"type {kind} is unknown: damaged")
        dtype = np.dtype(NUMBERS[kind])
        size = dtype.itemsize * self._counted(count, dtype.itemsize, "numbers")
        return np.frombuffer(self.take(size), dtype).tolist()

    def _texts(self, count: int) -> list[str]:
        """Return strings one behind the other; a vocabulary has hundreds of thousands."""
        data, at, end = self.data, self.at, len(self.data)
        found: list[bytes] = []
        for _ in range(count):
            begin = at + LENGTH.size
            at = begin + LENGTH.unpack_from(data, at)[0] if begin <= end else end + 1
            if at > end:
                self.refuse(f"string {len(found)} of {count} goes on past the end of the file")
            found.append(data[begin:at])
        try:
            texts = [each.decode() for each in found]
        except UnicodeDecodeError as error:
            self.refuse(f"a string is no UTF-8 ({error.reason}): damaged")
        self.at = at
        return texts

    def _entry(self) -> tuple[GgufTensor, int]:
        """Return a tensor that begins at its offset in the data, and the entry's own byte."""
        at = self.at
        self.subject = "the table of tensors"
        name = self.text()
        self.subject = f"tensor {name!r}"
        count = self.number(WORD)
        if not 1 <= count <= DIMENSIONS_MAX:
            self.refuse(f"it has {count} dimensions: damaged", at)
        shape = tuple(self.number(LENGTH) for _ in range(count))[::-1]
        number = self.number(WORD)
        try:
            kind = GGMLQuantizationType(number)
        except ValueError:
            self.refuse(f"its type {number} is unknown", at)
        block, size = GGML_QUANT_SIZES[kind]
        if min(shape) < 1 or shape[-1] % block:
            self.refuse(f"rows of {shape[-1]} are no whole blocks of {block} ({kind.name})", at)
        held = prod(shape) // block * size
        return GgufTensor(self.path, name, kind.name, shape, self.number(LENGTH), held), at

    def _alignment(self, fields: dict[str, Any]) -> int:
        found = fields.get(ALIGNMENT_KEY, ALIGNMENT)
        if not isinstance(found, int) or found < 1 or found & (found - 1):
            self.refuse(f"{ALIGNMENT_KEY} {found!r} is no power of two")
        return found

    def _placed(self, found: list[tuple[GgufTensor, int]], alignment: int) -> dict[str, GgufTensor]:
        """Return the tensors at their bytes of the file; each follows the one before."""
        rounded: Callable[[int], int] = lambda size: -(-size // alignment) * alignment  # noqa: E731
        data, expected = rounded(self.at), 0
        tensors: dict[str, GgufTensor] = {}
        for tensor, at in found:
            self.subject = f"tensor {tensor.name!r}"
            if tensor.name in tensors:
                self.refuse("it comes twice", at)
            if tensor.begin != expected:
                self.refuse(
                    f"its data are at {tensor.begin}, those before it end at {expected}: damaged",
                    at,
                )
            tensors[tensor.name] = tensor._replace(begin=data + expected)
            expected += rounded(tensor.size)
        self._check_end(list(tensors.values()))
        return tensors

    def _check_end(self, tensors: list[GgufTensor]) -> None:
        if not tensors:
            return
        held, end = len(self.data), tensors[-1].begin + tensors[-1].size
        if held < end:
            first = next(each for each in tensors if each.begin + each.size > held)
            raise Refused(
                f"{self.path}: the file is cut short: {held} of {end} bytes; tensor "
                f"{first.name!r} takes {first.size} bytes from byte {first.begin} on"
            )


def tensor_bytes(data: NDArray[np.uint8], tensor: GgufTensor) -> NDArray[np.uint8]:
    """Return a tensor's rows [rows, bytes a row] as a view of its file's bytes."""
    rows = prod(tensor.shape[:-1])
    return data[tensor.begin : tensor.begin + tensor.size].reshape(rows, -1)
