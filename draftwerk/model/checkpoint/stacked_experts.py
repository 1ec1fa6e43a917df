"""Experts that Transformers has stacked in memory, and may write so, by a family's own names."""

import re
from collections.abc import Iterator, Mapping

from draftwerk.model.checkpoint.families.architecture import Architecture
from draftwerk.model.checkpoint.files.shards import StoredTensor

STACKED = re.compile(r"(model\.layers\.\d+\.)\S+\.experts\.(gate_up|down)_proj\.weight")
Named = Iterator[tuple[str, StoredTensor]]


def unstacked(row: Architecture, stored: Mapping[str, StoredTensor]) -> dict[str, StoredTensor]:
    """Return tensors with each expert's rows of those that are stacked, [experts, out, in]."""
    if row.experts is None or row.experts_interleave:
        return dict(stored)
    found: dict[str, StoredTensor] = {}
    layers: set[str] = set()
    for name, held in stored.items():
        match = STACKED.fullmatch(name)
        if match is None or len(held.shape) != 3:
            found[name] = held
        else:
            layers.add(match[1])
            found |= _parts(row, match[1], match[2], held._replace(name=held.name or name))
    for layer in layers if row.names.stacked_router else ():
        name = f"{layer}{row.names.stacked_router}.weight"
        if (held := found.pop(name, None)) is not None:
            own = held._replace(name=held.name or name)
            found[f"{layer}{row.names.router}.weight"] = own
    return found


def _parts(row: Architecture, layer: str, kind: str, held: StoredTensor) -> Named:
    parts = row.names.expert_gate_up if kind == "gate_up" else (row.names.expert_down,)
    if "{}" not in parts[0]:
        yield f"{layer}{parts[0]}.weight", held
        return
    count, rows, inputs = held.shape
    size = rows // len(parts)
    for expert in range(count):
        for at, part in enumerate(parts):
            own = held._replace(shape=(size, inputs), expert=expert, first=at * size)
            yield f"{layer}{part.format(expert)}.weight", own
