"""The sources of quantising: the matrices of a GGUF, or of safetensors under GGUF's names."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from gguf import GGUFValueType, GGUFWriter

from draftwerk.model.checkpoint.files.gguf_header import GgufTensor, read_gguf_header
from draftwerk.model.checkpoint.files.gguf_shards import read_gguf
from draftwerk.model.checkpoint.gguf_card import GgufCard, read_card
from draftwerk.model.checkpoint.gguf_source import METHOD, dequantised
from draftwerk.model.checkpoint.hf_config import read_supported
from draftwerk.model.checkpoint.hub import Location
from draftwerk.model.checkpoint.recommended import recommended
from draftwerk.model.checkpoint.supported import experts_of, sizes_of
from draftwerk_tools.quantising.safetensors_source import SafetensorsSource
from draftwerk_tools.quantising.searches import Floats

QUERIES_OF_SHARED_KEYS = 4
KEPT_OUT = (
    *("split.", "general.architecture", "general.file_type", "general.quantization"),
    METHOD,
)
"""Metadata of a file that another file of the same model does not have."""


class Source(NamedTuple):
    """A model to be written as a GGUF."""

    name: str
    architecture: str
    """As GGUF files call it."""
    layer_count: int
    shares_keys: bool
    shapes: dict[str, tuple[int, ...]]
    """By GGUF's names, in the order in which they are written."""
    values: Callable[[str], Floats]
    write_fields: Callable[[GGUFWriter], None]
    experts: int = 0
    """The experts of a layer, where it has some."""
    kinds: tuple[str, ...] = ()
    """The types that its matrices are quantised to already."""
    sampling: Mapping[str, float] = MappingProxyType({})
    """Sampling that it recommends, by name."""


def open_source(location: Location) -> Source:
    """Return a located model. Raises Refused for one that has no form in a GGUF."""
    hf = read_supported(location.directory)
    heads, kv_heads, _ = sizes_of(hf)
    experts = experts_of(hf)
    common = {
        "experts": 0 if experts is None else experts.count,
        "layer_count": hf["num_hidden_layers"],
        "shares_keys": heads // kv_heads >= QUERIES_OF_SHARED_KEYS,
        "sampling": recommended(location.directory, location.name)[0].given(),
    }
    card = read_card(location.directory)
    if card is not None:
        return _gguf(location.name, card, common)
    held = SafetensorsSource(location.directory, hf)
    return Source(
        name=location.name,
        architecture=held.architecture,
        shapes=held.shapes,
        values=held.values,
        write_fields=partial(held.write_fields, location.name),
        **common,
    )


def layer_number(name: str) -> int:
    """Return the layer of a tensor, by its name in GGUF; -1 of those outside."""
    return int(name.split(".")[1]) if name.startswith("blk.") else -1


def _gguf(name: str, card: GgufCard, common: dict[str, Any]) -> Source:
    card.check_unchanged()
    model = read_gguf(Path(card.paths[0]))
    return Source(
        name=name,
        architecture=model.fields["general.architecture"],
        shapes={each.name: each.shape for each in model.tensors.values()},
        values=lambda wanted: _float32(model.tensors[wanted]),
        write_fields=partial(copy_fields, model.paths[0]),
        kinds=tuple(card.kinds) if card.is_quantised else (),
        **common,
    )


def _float32(tensor: GgufTensor) -> Floats:
    values = dequantised(tensor)
    return np.ascontiguousarray(values, np.float32).reshape(tensor.shape)


def copy_fields(path: Path, writer: GGUFWriter) -> None:
    """Write the metadata of a file, but for what says how it is made."""
    header = read_gguf_header(path)
    for name, value in header.fields.items():
        if not name.startswith(KEPT_OUT):
            kind, *inner = map(GGUFValueType, header.kinds[name])
            writer.add_key_value(name, value, kind, *inner)
