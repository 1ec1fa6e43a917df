"""Which file holds which tensor of a checkpoint, read from the files' headers without torch."""

from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from safetensors import SafetensorError, safe_open

from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.unsupported import Refused

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
"""The types that are served, by the format's own names; every other type is some quantisation."""


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
    """The first of these rows."""


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
        with safe_open(path, framework="np") as file:
            held = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise Refused(f"{path}: {error}; fetch it again") from error
    return {
        name: StoredTensor(path, each.get_dtype(), tuple(each.get_shape()))
        for name, each in held.items()
    }
