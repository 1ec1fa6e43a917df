"""The tensors of a quantised checkpoint, and the matrices that they are in an inventory.

A matrix `NAME.weight` of the inventory is then several tensors:

    gptq    NAME.qweight [k/8, n], .qzeros [k/g, n/8], .scales [k/g, n], .g_idx [k]
    awq     NAME.qweight [k, n/8], .qzeros [k/g, n/8], .scales [k/g, n]
    packed  NAME.weight_packed [n, k/8], .weight_scale [n, k/g], .weight_shape, perhaps
            .weight_zero_point [n/8, k/g] and .weight_g_idx [k]       (compressed-tensors)
    mxfp4   NAME.blocks [experts, n, k/32, 16], .scales [experts, n, k/32]
    int8    NAME.weight [n, k], .weight_scale [n, 1]                  (compressed-tensors)
    fp8     NAME.weight [n, k], .weight_scale or .weight_scale_inv: of all, of rows, or of blocks
"""

from collections.abc import Mapping
from math import prod

from draftwerk.model.checkpoint.files.shards import StoredTensor
from draftwerk.model.checkpoint.quantised.scheme import MX_GROUP, Scheme
from draftwerk.model.checkpoint.unsupported import Refused

WEIGHT = ".weight"
MAIN = {
    "gptq": ".qweight",
    "awq": ".qweight",
    "packed": ".weight_packed",
    "mxfp4": ".blocks",
}
"""What a quantised matrix is told by; of the others by its type."""
MARKED = {"int8": "I8", "fp8": "F8_E4M3"}


def quantised_names(scheme: Scheme, stored: Mapping[str, StoredTensor]) -> tuple[str, ...]:
    """Return the matrices `NAME.weight` that are quantised."""
    if scheme.layout in MAIN:
        end = MAIN[scheme.layout]
        return tuple(name.removesuffix(end) + WEIGHT for name in stored if name.endswith(end))
    marked = MARKED[scheme.layout]
    return tuple(name for name, each in stored.items() if each.dtype == marked)


def collapsed(
    scheme: Scheme, stored: Mapping[str, StoredTensor]
) -> tuple[dict[str, StoredTensor], dict[str, int]]:
    """Return the tensors as an inventory has them, and the bytes of each type."""
    names = quantised_names(scheme, stored)
    prefixes = {name.removesuffix(WEIGHT) for name in names}
    found = {name: each for name, each in stored.items() if name.rsplit(".", 1)[0] not in prefixes}
    found |= {
        f"{prefix}.bias": stored[f"{prefix}.bias"]
        for prefix in prefixes
        if f"{prefix}.bias" in stored
    }
    sizes: dict[str, int] = {}
    for name in names:
        shape = _shape(scheme, name, stored)
        kind, _ = kind_of(scheme, name, shape)
        found[name] = stored[_main(scheme, name)]._replace(dtype="BF16", shape=shape)
        eighths = 8 if kind[:2] in ("G8", "F8") else 4
        sizes[kind] = sizes.get(kind, 0) + prod(shape) * eighths // 8
    return found, sizes


def kind_of(scheme: Scheme, name: str, shape: tuple[int, ...]) -> tuple[str, int]:
    """Return the type that holds a matrix exactly, and its inputs a block. Raises Refused."""
    inputs = shape[1]
    if scheme.layout == "mxfp4":
        return "MXFP4", MX_GROUP
    group = inputs if scheme.group == -1 else scheme.group
    if inputs % group:
        raise Refused(f"{name}: {inputs} inputs are no whole groups of {group}")
    letter = {"int8": "G8", "fp8": "F8"}.get(scheme.layout, "G4")
    for size in (128, 32) if letter == "G4" else (128,):
        if group % size == 0:
            return f"{letter}_{size}", size
    raise Refused(f"{name}: groups of {group} inputs are not supported with {scheme.name}")


def _main(scheme: Scheme, name: str) -> str:
    return name.removesuffix(WEIGHT) + MAIN.get(scheme.layout, WEIGHT)


def _shape(scheme: Scheme, name: str, stored: Mapping[str, StoredTensor]) -> tuple[int, ...]:
    """Return rows and inputs; of experts as without blocks, [experts, in, out].

    Raises Refused for parts that are missing or do not fit.
    """
    held = stored[_main(scheme, name)].shape
    if scheme.layout == "mxfp4":
        if len(held) != 4 or held[3] != MX_GROUP // 2:
            raise Refused(f"{_main(scheme, name)} has shape {held}, not one of experts in MXFP4")
        _check_parts(scheme, name, stored, {".scales": (held[:3],)})
        return held[0], MX_GROUP * held[2], held[1]
    if len(held) != 2:
        raise Refused(f"{_main(scheme, name)} has shape {held}, not one of a matrix")
    rows, inputs = {
        "gptq": (held[1], 8 * held[0]),
        "awq": (8 * held[1], held[0]),
        "packed": (held[0], 8 * held[1]),
    }.get(scheme.layout, held)
    groups = 1 if scheme.group == -1 else -(-inputs // scheme.group)
    _check_parts(scheme, name, stored, _parts(scheme, rows, groups))
    return rows, inputs


def _check_parts(
    scheme: Scheme,
    name: str,
    stored: Mapping[str, StoredTensor],
    parts: Mapping[str, tuple[tuple[int, ...], ...]],
) -> None:
    prefix = name.removesuffix(WEIGHT)
    for end, shapes in parts.items():
        part = stored.get(prefix + end)
        if part is None:
            raise Refused(f"the weights lack {prefix + end}, which {scheme.name} needs")
        if part.shape not in shapes:
            wanted = " or ".join(map(str, shapes))
            raise Refused(f"{part.path}: {prefix + end} has shape {part.shape}, not {wanted}")


def _parts(scheme: Scheme, rows: int, groups: int) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Return what else a matrix has, with the shapes that it may have."""
    match scheme.layout:
        case "gptq" | "awq":
            return {".scales": ((groups, rows),), ".qzeros": ((groups, -(-rows // 8)),)}
        case "packed":
            zeros = (
                {} if scheme.is_symmetric else {".weight_zero_point": ((-(-rows // 8), groups),)}
            )
            return {".weight_scale": ((rows, groups),), **zeros}
        case "fp8" if scheme.column_block:
            return {scheme.scale_name: ((-(-rows // scheme.column_block), groups),)}
        case "int8":
            return {".weight_scale": ((rows, groups), (rows,))}
        case _:
            return {".weight_scale": ((rows, 1), (rows,), (1,), ())}
