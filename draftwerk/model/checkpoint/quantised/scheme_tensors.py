"""The tensors of a quantised checkpoint, and the matrices that they are in an inventory.

A matrix `NAME.weight` of the inventory is then several tensors:

    gptq    NAME.qweight [k/8, n], .qzeros [k/g, n/8], .scales [k/g, n], .g_idx [k]
    awq     NAME.qweight [k, n/8], .qzeros [k/g, n/8], .scales [k/g, n]
    packed  NAME.weight_packed [n, k/8], .weight_scale [n, k/g], .weight_shape, perhaps
            .weight_zero_point [n/8, k/g] and .weight_g_idx [k]       (compressed-tensors)
    mxfp4   NAME.blocks [experts, n, k/32, 16], .scales [experts, n, k/32]
    int8    NAME.weight [n, k], .weight_scale [n, 1]                  (compressed-tensors)
    fp8     NAME.weight [n, k], .weight_scale or .weight_scale_inv: of all, of rows, or of blocks

Zero points of matrices that have none may be there as zeros, and scales of activations, which are
not quantised. A matrix with any other part is refused by that part's name.
"""

from collections.abc import Mapping
from math import prod

from draftwerk.model.checkpoint.files.shards import BYTES, StoredTensor
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
ZERO_POINT = ".weight_zero_point"
BESIDE = {
    "gptq": (".qzeros", ".scales", ".g_idx"),
    "awq": (".qzeros", ".scales"),
    "packed": (".weight_scale", ".weight_shape", ".weight_g_idx", ZERO_POINT),
    "mxfp4": (".scales",),
    "int8": (".weight_scale", ZERO_POINT),
    "fp8": (ZERO_POINT,),
}
"""Parts of a matrix that are read."""
OF_ACTIVATIONS = (
    *(".input_scale", ".input_zero_point", ".output_scale", ".output_zero_point"),
    ".activation_scale",
)
OF_CACHES = tuple(f".{of}_{part}" for of in "qkv" for part in ("scale", "zero_point"))
FLOATS = (*BYTES, "F8_E8M0")


def quantised_names(scheme: Scheme, stored: Mapping[str, StoredTensor]) -> tuple[str, ...]:
    """Return the matrices `NAME.weight` that are quantised."""
    if scheme.layout in MAIN:
        end = MAIN[scheme.layout]
        return tuple(name.removesuffix(end) + WEIGHT for name in stored if name.endswith(end))
    marked = MARKED[scheme.layout]
    return tuple(
        name for name, each in stored.items() if each.dtype == marked and name.endswith(WEIGHT)
    )


def scale_name(scheme: Scheme, prefix: str, stored: Mapping[str, StoredTensor]) -> str:
    """Return the name of a matrix's scales, or what it should be."""
    names = [prefix + each for each in scheme.scale_names]
    return next((each for each in names if each in stored), names[0])


def collapsed(
    scheme: Scheme, stored: Mapping[str, StoredTensor]
) -> tuple[dict[str, StoredTensor], dict[str, int]]:
    """Return the tensors as an inventory has them, and the bytes of each type."""
    names = quantised_names(scheme, stored)
    prefixes = {name.removesuffix(WEIGHT) for name in names}
    outside = {name for name in stored if name.rsplit(".", 1)[0] not in prefixes}
    for name in stored.keys() - outside:
        _check_known(scheme, name, stored)
    if scheme.has_cache_scales:
        outside = {name for name in outside if not name.endswith(OF_CACHES)}
    found = {name: each for name, each in stored.items() if name in outside}
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


def _check_known(scheme: Scheme, name: str, stored: Mapping[str, StoredTensor]) -> None:
    """Raise Refused for a part of a matrix that nobody reads."""
    prefix, _, part = name.rpartition(".")
    main = _main(scheme, prefix + WEIGHT)
    read = (".bias", *BESIDE[scheme.layout], *OF_ACTIVATIONS)
    if f".{part}" not in read and name not in (main, scale_name(scheme, prefix, stored)):
        raise Refused(f"{stored[name].path}: {name} is not supported with {scheme.name}")


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
    prefix = name.removesuffix(WEIGHT)
    scale = scale_name(scheme, prefix, stored).removeprefix(prefix)
    _check_parts(scheme, name, stored, _parts(scheme, scale, rows, groups))
    return rows, inputs


def _check_parts(
    scheme: Scheme,
    name: str,
    stored: Mapping[str, StoredTensor],
    parts: Mapping[str, tuple[tuple[int, ...], ...]],
) -> None:
    prefix = name.removesuffix(WEIGHT)
    scales = FLOATS if scheme.layout != "mxfp4" else ("U8",)
    words = "U8" if scheme.layout == "mxfp4" else "I32"
    for part, shapes in {**parts, _main(scheme, name).removeprefix(prefix): None}.items():
        held = stored.get(prefix + part)
        if held is None:
            raise Refused(f"the weights lack {prefix + part}, which {scheme.name} needs")
        if shapes is not None and held.shape not in shapes:
            wanted = " or ".join(map(str, shapes))
            raise Refused(f"{held.path}: {prefix + part} has shape {held.shape}, not {wanted}")
        types = scales if "scale" in part else (words, MARKED.get(scheme.layout))
        if held.dtype not in types:
            raise Refused(f"{held.path}: {prefix + part} of type {held.dtype} is not supported")


def _parts(
    scheme: Scheme, scale: str, rows: int, groups: int
) -> dict[str, tuple[tuple[int, ...], ...]]:
    """Return what else a matrix has, with the shapes that it may have."""
    match scheme.layout:
        case "gptq" | "awq":
            return {".scales": ((groups, rows),), ".qzeros": ((groups, -(-rows // 8)),)}
        case "packed":
            zeros = {} if scheme.is_symmetric else {ZERO_POINT: ((-(-rows // 8), groups),)}
            return {scale: ((rows, groups),), **zeros}
        case "fp8" if scheme.column_block:
            return {scale: ((-(-rows // scheme.column_block), groups),)}
        case "int8" if scheme.group != -1:
            return {scale: ((rows, groups),)}
        case _:
            return {scale: ((rows, 1), (rows,), (1,), ())}
