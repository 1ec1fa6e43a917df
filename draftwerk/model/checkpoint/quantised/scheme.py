"""How a checkpoint of safetensors is quantised, read from its config without torch."""

from typing import Any, NamedTuple, cast

from draftwerk.model.checkpoint.families.architecture import Json
from draftwerk.model.checkpoint.keys.quantisation_keys import (
    BY_METHOD,
    COMPRESSED_GROUP,
    COMPRESSED_WEIGHTS,
    SPARSITY,
)
from draftwerk.model.checkpoint.unsupported import Refused

FIELDS = ("quantization_config", "compression_config")
SERVED = "AWQ, GPTQ, compressed-tensors, FP8 and MXFP4 are, as is a GGUF file"
FORMATS = {"pack-quantized": "packed", "int-quantized": "int8", "float-quantized": "fp8"}
NAIVE = "naive-quantized"
"""One of the last two, by the numbers' type."""
BITS = {"packed": 4, "int8": 8, "fp8": 8}
STRATEGIES = {
    "packed": ("group", "channel"),
    "int8": ("group", "channel", "tensor"),
    "fp8": ("channel", "tensor", "block"),
}
"""The parts that share a scale, by compressed-tensors' names."""
TYPES = {"packed": "int", "int8": "int", "fp8": "float"}
WHERE = "quantization_config "
MX_GROUP = 32


class Scheme(NamedTuple):
    """The facts needed to read the matrices."""

    name: str
    """The name that people know it by."""
    layout: str
    """One of those of `scheme_tensors`."""
    group: int = -1
    """Inputs that share a scale; -1 for all."""
    is_symmetric: bool = True
    zero_offset: int = 0
    """The number that a stored zero lacks."""
    column_block: int = 0
    """Rows that share a scale, of blocks; 0 where there are none."""
    scale_names: tuple[str, ...] = (".weight_scale",)
    """The names that a matrix's scales may have; it has one."""
    has_cache_scales: bool = False
    """Whether attention may have scales of keys and values, which are kept in another format."""


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
    names = (".weight_scale_inv",) if size is not None else (".weight_scale", ".weight_scale_inv")
    return _fp8_blocks("FP8", size)._replace(scale_names=names)


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
    formats = {**FORMATS, NAIVE: "fp8" if weights.get("type") == "float" else "int8"}
    if named not in formats:
        raise Refused(
            f"quantization_config format {named!r} is not supported (only {', '.join(formats)})"
        )
    layout = formats[named]
    _require("compressed-tensors", weights, "num_bits", BITS[layout])
    _require("compressed-tensors", {"type": "int", **weights}, "type", TYPES[layout])
    is_symmetric = _flag(weights, "symmetric")
    _check_strategy(weights, layout)
    name = f"compressed-tensors {named}"
    if layout != "packed" and not is_symmetric:
        raise Refused(f"quantization_config symmetric false is not supported with {named}")
    found = Scheme(name, layout, _group(weights), is_symmetric)
    if layout == "fp8":
        found = _fp8_blocks(name, weights.get("block_structure"))
    return found._replace(has_cache_scales=bool(config.get("kv_cache_scheme")))


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
