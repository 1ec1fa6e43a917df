"""A GGUF model in one file, or in several that llama.cpp's gguf-split has made of it.

NAME-00001-of-00003.gguf   all metadata, some tensors    split.no 0, split.count 3,
NAME-00002-of-00003.gguf   the next tensors              split.tensors.count of all together
"""

from pathlib import Path
from typing import Any, NamedTuple

from draftwerk.model.checkpoint.files.gguf_header import GgufHeader, GgufTensor, read_gguf_header
from draftwerk.model.checkpoint.files.shard_names import shard_paths
from draftwerk.model.checkpoint.unsupported import Refused

NUMBER, COUNT, TENSOR_COUNT = "split.no", "split.count", "split.tensors.count"


class GgufModel(NamedTuple):
    """The metadata of the first file, and the tensors of all."""

    paths: tuple[Path, ...]
    fields: dict[str, Any]
    tensors: dict[str, GgufTensor]


def read_gguf(path: Path) -> GgufModel:
    """Return a model, named by any of its files. Raises Refused for files that do not fit."""
    paths = shard_paths(path)
    headers = [read_gguf_header(each) for each in paths]
    if not headers:
        raise Refused(f"{path}: its name says that it is one of no files")
    for number, header in enumerate(headers):
        _check_part(header, number, headers[0], len(paths))
    return GgufModel(paths, headers[0].fields, _united(headers))


def _check_part(header: GgufHeader, number: int, first: GgufHeader, count: int) -> None:
    """Refuse a file that is another part than its name says, or one of another model."""
    found = header.fields.get(COUNT, 1)
    if found != count:
        raise Refused(
            f"{header.path}: its name says that the model has {count} files, its {COUNT} {found}; "
            "give it the name that gguf-split gave it"
        )
    if count == 1:
        return
    if header.fields.get(NUMBER) != number:
        raise Refused(
            f"{header.path}: its name says part {number + 1}, its {NUMBER} "
            f"{header.fields.get(NUMBER)} (counted from 0)"
        )
    for key in (TENSOR_COUNT, "general.architecture"):
        own = header.fields.get(key, first.fields.get(key))
        if own != first.fields.get(key):
            raise Refused(
                f"{header.path}: its {key} is {own}, that of {first.path.name} "
                f"{first.fields.get(key)}: parts of two models"
            )


def _united(headers: list[GgufHeader]) -> dict[str, GgufTensor]:
    tensors: dict[str, GgufTensor] = {}
    for header in headers:
        for name, tensor in header.tensors.items():
            if name in tensors:
                raise Refused(
                    f"{header.path}: tensor {name!r} is in {tensors[name].path.name} too: "
                    "parts of two models"
                )
            tensors[name] = tensor
    wanted = headers[0].fields.get(TENSOR_COUNT, len(tensors))
    if wanted != len(tensors):
        raise Refused(
            f"{headers[0].path}: {TENSOR_COUNT} is {wanted}, its files have {len(tensors)}: "
            "parts of two models"
        )
    return tensors
