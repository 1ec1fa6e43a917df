"""A GGUF model that is read: its metadata, and which of its tensors are weights."""

from collections.abc import Iterator
from itertools import chain
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize
from numpy.typing import NDArray

from draftwerk.model.checkpoint.architectures import ARCHITECTURES
from draftwerk.model.checkpoint.families.architecture import Architecture
from draftwerk.model.checkpoint.files.gguf_header import GgufTensor, tensor_bytes
from draftwerk.model.checkpoint.files.gguf_shards import GgufModel, read_gguf
from draftwerk.model.checkpoint.gguf_metadata import checked
from draftwerk.model.checkpoint.unsupported import Refused

ROPE_DIVISORS = "rope_freqs.weight"
FACTORS = ("rope_factors_short.weight", "rope_factors_long.weight")
CLASSES = "cls.output.weight"
"""A reranker's rows of yes and no, which its vocabulary has as well."""
METHOD = "draftwerk.quantised.method"
"""Metadata: by what method, and what it saw, matrices were rounded; else each number by itself."""
NO_WEIGHTS = (ROPE_DIVISORS, *FACTORS, CLASSES)


class GgufSource(NamedTuple):
    """A GGUF model and what its metadata is called in it."""

    model: GgufModel
    architecture: str
    row: Architecture
    looked_up: set[str]
    """Keys that were asked for."""

    def get(self, key: str, default: Any = None) -> Any:
        """Return a metadata value; a leading dot stands for the architecture's own prefix.

        Raises Refused for one of another kind than the key's.
        """
        named = self.architecture + key if key.startswith(".") else key
        self.looked_up.add(key)
        found = self.model.fields.get(named)
        return default if found is None else checked(key, found, self.architecture)

    @property
    def layer_count(self) -> int:
        """Layers of the model itself, without those behind it that draft."""
        return self.get(".block_count") - self.get(".nextn_predict_layers", 0)


def flat(tensor: GgufTensor) -> tuple[int, ...]:
    """Return a tensor's shape, matrices of all experts one above the other."""
    return flat_shape(tensor.shape)


def flat_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return a shape in which matrices of all experts lie one above the other."""
    *above, columns = shape
    return (prod(above), columns) if len(above) > 1 else shape


def open_gguf(path: Path) -> GgufSource:
    """Read the header of a model whose architecture is served. Raises Refused."""
    model = read_gguf(path)
    architecture = model.fields.get("general.architecture")
    for row in ARCHITECTURES:
        source = GgufSource(model, str(architecture), row, set())
        if row.gguf and architecture in row.gguf.own_names and row.gguf.is_for(source.get):
            return source
    names = (row.gguf.own_names for row in ARCHITECTURES if row.gguf)
    served = ", ".join(dict.fromkeys(chain.from_iterable(names)))
    raise Refused(f"GGUF architecture {architecture!r} is not supported (only {served})")


def weight_tensors(source: GgufSource) -> Iterator[GgufTensor]:
    """Yield the tensors that are weights, in the order of the files."""
    drafting = range(source.layer_count, source.get(".block_count"))
    left_out = tuple(f"blk.{index}." for index in drafting)
    for each in source.model.tensors.values():
        if each.name not in NO_WEIGHTS and not each.name.startswith(left_out):
            yield each


def dequantised(tensor: GgufTensor, rows: slice = slice(None)) -> NDArray[np.float32]:
    """Return a tensor's rows in float32, as they lie in the file; a vector has one."""
    stored = tensor_bytes(np.memmap(tensor.path, mode="r"), tensor)[rows]
    return dequantize(stored, GGMLQuantizationType[tensor.kind]).reshape(-1, *tensor.shape[1:][-1:])
