"""How a checkpoint of safetensors is quantised, read from its config without torch.

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
from typing import Any, NamedTuple, cast

from draftwerk.model.checkpoint.families.architecture import Json
from draftwerk.model.checkpoint.files.shards import StoredTensor
from draftwerk.model.checkpoint.keys.quantisation_keys import (
    BY_METHOD,
    COMPRESSED_GROUP,
    COMPRESSED_WEIGHTS,
    SPARSITY,
)
from draftwerk.model.checkpoint.unsupported import Refused

FIELDS = ("quantization_config", "compression_config")
SERVED = "AWQ, GPTQ, compressed-tensors, FP8 and MXFP4 are, as is a GGUF file"
WEIGHT = ".weight"
MAIN = {
    "gptq": ".qweight",
    "awq": ".qweight",
    "packed": ".weight_packed",
    "mxfp4": ".blocks",
}
"""What a quantised matrix is told by; of the others by its type."""
MARKED = {"int8": "I8", "fp8": "F8_E4M3"}
FORMATS = {"pack-quantized": "packed", "int-quantized": "int8", "float-quantized": "fp8"}
BITS = {"packed": 4, "int8": 8, "fp8": 8}
STRATEGIES = {
    "packed": ("group", "channel"),
    "int8": ("group", "channel", "tensor"),
    "fp8": ("channel", "tensor", "block"),
}
"""What shares a scale, by compressed-tensors' names."""
TYPES = {"packed": "int", "int8": "int", "fp8": "float"}
WHERE = "quantization_config "
MX_GROUP = 32


class Scheme(NamedTuple):
    """What must be known to read the matrices."""

    name: str
    """What people call it."""
    layout: str
    """One of those above."""
    group: int = -1
    """Inputs that share a scale; -1 for all."""
    is_symmetric: bool = True
    zero_offset: int = 0
    """What a stored zero lacks."""
    column_block: int = 0
    """Rows that share a scale, of blocks; 0 where there are none."""
    scale_name: str = ".weight_scale"


def scheme_of(hf: Json) -> Scheme | None:
    """Return a config's scheme, None without one. Raises Refused, naming the field."""
    field = next((each for each in FIELDS if hf.get(each)), None)
    if field is None:
        return None
    config = hf[field]
    method = str(_object(config).get("quant_method", "unnamed"))
    if method not in READERS:
        raise Refused(f"{field} {method!r} is not supported; {SERVED}")
    BY_METHOD[method].check(config, WHERE)
    return READERS[method](config)


def _gptq(config: Json) -> Scheme:
    _require("gptq", config, "bits", 4)
    versions = {key: config[key] for key in ("checkpoint_format", "format") if config.get(key)}
    for key, version in versions.items():
        if version not in ("gptq", "gptq_v2"):
            raise Refused(f"quantization_config {key} {version!r} is not supported")
    if len(set(versions.values())) > 1:
        raise Refused(f"quantization_config {versions} contradict each other")
    offset = 0 if "gptq_v2" in versions.values() else 1
    return Scheme("GPTQ", "gptq", _group(config), _flag(config, "sym"), offset)


def _awq(config: Json) -> Scheme:
    _require("awq", config, "bits", 4)
    if str(config.get("version", "gemm")).lower() != "gemm":
        raise Refused(f"quantization_config version {config['version']!r} is not supported (gemm)")
    return Scheme("AWQ", "awq", _group(config), is_symmetric=False)


def _fp8(config: Json) -> Scheme:
    if config.get("fmt", "e4m3") != "e4m3":
        raise Refused(f"quantization_config fmt {config['fmt']!r} is not supported (only e4m3)")
    size = config.get("weight_block_size")
    scale = ".weight_scale" if size is None else ".weight_scale_inv"
    return _fp8_blocks("FP8", size)._replace(scale_name=scale)


def _fp8_blocks(name: str, size: Any) -> Scheme:
    if size is None:
        return Scheme(name, "fp8")
    match size:
        case [int(rows), int(columns)] if rows > 0 and columns > 0 and columns % 128 == 0:
            return Scheme(name, "fp8", columns, column_block=rows)
        case _:
            raise Refused(f"quantization_config weight_block_size {size} is not supported (of 128)")


def _compressed(config: Json) -> Scheme:
    groups = [_object(each) for each in _object(config.get("config_groups")).values()]
    if len(groups) != 1 or groups[0].get("targets") != ["Linear"]:
        raise Refused(
            "quantization_config config_groups: only one group of all Linear layers is supported"
        )
    COMPRESSED_GROUP.check(groups[0], f"{WHERE}config_groups ")
    SPARSITY.check(_object(config.get("sparsity_config")), f"{WHERE}sparsity_config ")
    weights = _object(groups[0].get("weights"))
    COMPRESSED_WEIGHTS.check(weights, f"{WHERE}weights ")
    named = str(weights.get("format") or groups[0].get("format") or config.get("format"))
    if named not in FORMATS:
        raise Refused(
            f"quantization_config format {named!r} is not supported (only {', '.join(FORMATS)})"
        )
    layout = FORMATS[named]
    _require("compressed-tensors", weights, "num_bits", BITS[layout])
    _require("compressed-tensors", {"type": "int", **weights}, "type", TYPES[layout])
    is_symmetric = _flag(weights, "symmetric")
    _check_strategy(weights, layout)
    name = f"compressed-tensors {named}"
    if layout == "packed":
        return Scheme(name, layout, _group(weights), is_symmetric)
    if not is_symmetric:
        raise Refused(f"quantization_config symmetric false is not supported with {named}")
    if layout == "fp8":
        return _fp8_blocks(name, weights.get("block_structure"))
    return Scheme(name, layout, _group(weights))


def _check_strategy(weights: Json, layout: str) -> None:
    """Refuse a strategy that contradicts the sizes of groups, by which matrices are read."""
    strategy, group, block = (
        weights.get(each) for each in ("strategy", "group_size", "block_structure")
    )
    if strategy is not None and strategy not in STRATEGIES[layout]:
        raise Refused(f"{WHERE}strategy {strategy!r} is not supported with {layout}")
    if layout == "fp8" and group is not None:
        raise Refused(f"{WHERE}group_size {group!r} is not supported with {layout}")
    has_groups = group not in (None, -1)
    if strategy is not None and (strategy == "group") != has_groups:
        raise Refused(f"{WHERE}strategy {strategy!r} contradicts group_size {group!r}")
    if layout == "fp8" and strategy is not None and (strategy == "block") != (block is not None):
        raise Refused(f"{WHERE}strategy {strategy!r} contradicts block_structure {block!r}")
    if layout != "fp8" and block is not None:
        raise Refused(f"{WHERE}block_structure {block!r} is not supported with {layout}")


READERS = {
    "gptq": _gptq,
    "awq": _awq,
    "fp8": _fp8,
    "compressed-tensors": _compressed,
    "mxfp4": lambda _: Scheme("MXFP4", "mxfp4", MX_GROUP),
}


def _object(found: Any) -> Json:
    """Return a part of a config; empty for what has no fields."""
    return cast(Json, found) if isinstance(found, dict) else {}


def _require(method: str, config: Json, field: str, served: int | str) -> None:
    if config.get(field) != served:
        raise Refused(
            f"quantization_config {field} {config.get(field)!r} of {method} is not supported "
            f"(only {served})"
        )


def _flag(config: Json, field: str) -> bool:
    """Return a switch that is on where nothing is said."""
    value = config.get(field, True)
    if not isinstance(value, bool):
        raise Refused(f"{WHERE}{field} {value!r} is neither true nor false")
    return value


def _group(config: Json) -> int:
    found = config.get("group_size")
    found = -1 if found is None else found
    if found != -1 and (not isinstance(found, int) or found < 32 or found % 32):
        raise Refused(f"quantization_config group_size {found!r} is no multiple of 32")
    return found


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
