"""Which file holds which tensor of a checkpoint, read from the files' headers without torch."""

from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.unsupported import Refused

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
HEADER_MAX = 100_000_000
"""As in the safetensors library."""
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""What is served, by the format's own names; every other type is some quantisation."""


class StoredTensor(NamedTuple):
    """Where a tensor is, and its entry in the file's header."""

    path: Path
    dtype: str
    shape: tuple[int, ...]
    name: str = ""
    """In the file, where that is another."""
    expert: int = -1
    """Whose rows it is, where the file has those of all experts in one tensor."""
    first: int = 0
    """Of these rows."""


class _Entry(msgspec.Struct, frozen=True):
    """A tensor's entry in a header."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


def stored_tensors(directory: Path) -> dict[str, StoredTensor]:
    """Return every tensor of a checkpoint. Raises Refused, naming the file that is amiss."""
    path = directory / INDEX
    index = read_json(path)
    if index is None:
        if not (directory / SINGLE).is_file():
            raise Refused(f"{directory}: no {SINGLE} (safetensors and GGUF only)")
        return read_header(directory / SINGLE)
    weight_map = _weight_map(path, index)
    shards = sorted(set(weight_map.values()))
    if SINGLE not in shards and (directory / SINGLE).is_file():
        raise Refused(f"{directory}: {SINGLE} and {INDEX} are two checkpoints; remove one")
    found: dict[str, StoredTensor] = {}
    for shard in shards:
        if not (directory / shard).is_file():
            raise Refused(f"{directory / shard}: it is missing, and {INDEX} names it")
        held = read_header(directory / shard)
        _compare(directory / shard, held, {n for n, file in weight_map.items() if file == shard})
        found |= held
    return found


def _weight_map(path: Path, index: dict[str, Any]) -> dict[str, str]:
    try:
        found = msgspec.convert(index.get("weight_map"), dict[str, str])
    except msgspec.ValidationError:
        raise Refused(f"{path}: no weight_map from tensors to files") from None
    for file in found.values():
        if Path(file).name != file:
            raise Refused(f"{path}: {file!r} is not the name of a file beside it")
    return found


def _compare(path: Path, held: dict[str, StoredTensor], indexed: set[str]) -> None:
    """Refuse a shard that does not hold the tensors of the index."""
    if lacking := sorted(indexed - held.keys()):
        raise Refused(f"{path}: it lacks {lacking[0]}, which {INDEX} says it holds")
    if unknown := sorted(held.keys() - indexed):
        raise Refused(f"{path}: it holds {unknown[0]}, which {INDEX} does not say")


def read_header(path: Path) -> dict[str, StoredTensor]:
    """Return the tensors of one file. Raises Refused for no safetensors, or one cut short."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if not 0 < length <= min(size - 8, HEADER_MAX):
                raise Refused(f"{path}: not a safetensors file, or cut short in its header")
            raw = file.read(length)
    except OSError as error:
        raise Refused(f"{path}: {error.strerror}") from error
    try:
        header = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        header.pop("__metadata__", None)
        entries = {name: msgspec.json.decode(each, type=_Entry) for name, each in header.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise Refused(f"{path}: not a safetensors file, its header is not readable") from None
    for name, entry in entries.items():
        _check_entry(path, name, entry)
    end = 8 + length + max((entry.data_offsets[1] for entry in entries.values()), default=0)
    if size != end:
        raise Refused(f"{path}: it has {size} bytes, its header says {end}; fetch it again")
    return {name: StoredTensor(path, entry.dtype, entry.shape) for name, entry in entries.items()}


def _check_entry(path: Path, name: str, entry: _Entry) -> None:
    begin, end = entry.data_offsets
    held = end - begin
    wanted = prod(entry.shape) * BYTES.get(entry.dtype, 0)
    if begin < 0 or held < 0 or min(entry.shape, default=0) < 0 or (wanted and wanted != held):
        raise Refused(
            f"{path}: {name} has {held} bytes, {entry.dtype} {list(entry.shape)} {wanted}"
        )
