"""The content of an adapter's files, checked against the model that it is for, without torch."""

import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import msgspec

from draftwerk.model.checkpoint.architectures import BY_CLASS
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.files.content import content_name
from draftwerk.model.checkpoint.files.shards import BYTES, StoredTensor, read_header
from draftwerk.model.checkpoint.lora.lora_config import LoraConfig, read_lora_config
from draftwerk.model.checkpoint.text_part import text_name
from draftwerk.model.checkpoint.unsupported import Refused

WEIGHTS_FILE = "adapter_model.safetensors"
WRAPPER = "base_model.model."
"""The prefix that PEFT puts in front of the model's own names."""
LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)")
KINDS = {"lora_A.weight": 0, "lora_B.weight": 1}
REASONS = {
    "lora_embedding_A": "adapters of embeddings",
    "lora_embedding_B": "adapters of embeddings",
    "lora_magnitude_vector": "DoRA",
    "lora_B.bias": "lora_bias",
}
"""What tensors by their ends stand for, and is not supported."""
PARTS = ("qkv", "output", "gate_up", "down")
"""The matrices of a layer that may have an adapter's part."""
TARGETS = "target_modules, exclude_modules, layers_to_transform or layers_pattern"
DIGITS = 16


class AdaptedModule(NamedTuple):
    """Which columns of a layer's matrix one module is."""

    part: str
    """One of PARTS."""
    first: int
    columns: int
    inputs: int


class LoraPair(NamedTuple):
    """The tensors of one module."""

    name: str
    """The name of the module, as the model calls it."""
    layer: int
    module: AdaptedModule
    rank: int
    scale: float
    a: StoredTensor
    """[rank, inputs]"""
    b: StoredTensor
    """[columns, rank]"""


class LoraCard(msgspec.Struct, frozen=True, kw_only=True):
    """An adapter that fits its model."""

    path: Path
    digest: str
    """The digest of all that decides what it computes."""
    pairs: tuple[LoraPair, ...]

    @property
    def elements(self) -> int:
        """Numbers in all of its matrices."""
        return sum(pair.rank * (pair.module.inputs + pair.module.columns) for pair in self.pairs)


def read_lora(folder: Path, config: ModelConfig, cache: Path) -> LoraCard:
    """Return the card of an adapter for a model; `cache` keeps hashes of files.

    Raises Refused, naming the file and the tensor, for what is not served or does not fit.
    """
    lora, path = read_lora_config(folder), folder / WEIGHTS_FILE
    if not path.is_file():
        raise Refused(f"{folder}: no {WEIGHTS_FILE}")
    tensors = read_header(path)
    pairs = tuple(_pairs(path, lora, config, _by_module(path, lora, tensors)))
    if not pairs:
        raise Refused(f"{path}: it holds no tensors")
    scales = [(pair.name, pair.scale) for pair in pairs]
    found = f"{content_name(path, cache)} {scales}"
    return LoraCard(path=folder, digest=sha256(found.encode()).hexdigest()[:DIGITS], pairs=pairs)


def _by_module(
    path: Path, lora: LoraConfig, tensors: Mapping[str, StoredTensor]
) -> dict[str, list[StoredTensor | None]]:
    """Return A and B of each module, by its name in the model."""
    found: dict[str, list[StoredTensor | None]] = {}
    for name, tensor in tensors.items():
        for end, what in REASONS.items():
            if end in name:
                raise Refused(f"{path}: {name}: {what} is not supported")
        kind = next((kind for kind in KINDS if name.endswith(f".{kind}")), None)
        if kind is None:
            raise Refused(f"{path}: {name} is neither a lora_A nor a lora_B")
        if tensor.dtype not in BYTES or len(tensor.shape) != 2:
            raise Refused(
                f"{path}: {name} is {tensor.dtype} {list(tensor.shape)}, not a matrix of floats"
            )
        own = name.removesuffix(f".{kind}").removeprefix(WRAPPER)
        module = text_name(own)
        if not (lora.adapts(own) or lora.adapts(module)):
            raise Refused(f"{path}: {name}: {TARGETS} of its config do not name the module")
        found.setdefault(module, [None, None])[KINDS[kind]] = tensor._replace(name=name)
    return found


def _pairs(
    path: Path,
    lora: LoraConfig,
    config: ModelConfig,
    modules: Mapping[str, list[StoredTensor | None]],
) -> list[LoraPair]:
    found: list[LoraPair] = []
    for name, (a, b) in modules.items():
        layer, module = _located(path, name, config)
        if a is None or b is None:
            missing = "lora_A" if a is None else "lora_B"
            raise Refused(f"{path}: {name} has no {missing}")
        rank = lora.rank(name)
        _check_shape(path, a, (rank, module.inputs), rank)
        _check_shape(path, b, (module.columns, rank), rank)
        found.append(LoraPair(name, layer, module, rank, lora.scale(name), a, b))
    return sorted(found)


def _located(path: Path, name: str, config: ModelConfig) -> tuple[int, AdaptedModule]:
    """Return a module's layer, and its place there."""
    match = LAYER.fullmatch(name)
    if match is None:
        raise Refused(f"{path}: {name} is no module of a layer; such adapters are not supported")
    layer, own = int(match[1]), match[2]
    if layer >= config.layer_count:
        raise Refused(f"{path}: {name}: the model has {config.layer_count} layers")
    known = adapted_modules(config, layer)
    if own not in known:
        experts = ": adapters of experts" if "expert" in own else ""
        raise Refused(
            f"{path}: {name}{experts or ' is unknown'} is not supported, only "
            f"{', '.join(known)} of layer {layer}"
        )
    return layer, known[own]


def _check_shape(path: Path, tensor: StoredTensor, wanted: tuple[int, int], rank: int) -> None:
    if tensor.shape != wanted:
        raise Refused(
            f"{path}: {tensor.name} has shape {list(tensor.shape)}, where the model and rank "
            f"{rank} call for {list(wanted)}: is it an adapter of another model?"
        )


def adapted_modules(config: ModelConfig, layer: int) -> dict[str, AdaptedModule]:
    """Return the modules of a layer that adapters may have, by their names in it."""
    names, hidden = BY_CLASS[config.architecture].names, config.hidden_size
    kind, heads = config.kind(layer), config.key_heads(layer)
    query, key = config.num_heads * heads.size, heads.heads * heads.size
    found: dict[str, AdaptedModule] = {}
    if kind.mixer == "attention":
        rows = (query, key, key)[: 1 if kind.kv_from >= 0 else 3 - kind.keys_are_values]
        found = _stacked(names.qkv, "qkv", rows, hidden)
        if config.graph.has_output_gate:
            del found[names.qkv[0]]  # its rows take turns with those of gates
        found[names.output] = AdaptedModule("output", 0, hidden, query)
    if ffn := config.dense_size(layer):
        gate_up, down = names.dense(config.kind(layer).has_experts)
        parts = (ffn,) * (1 + config.graph.is_gated)
        found |= _stacked(gate_up, "gate_up", parts, hidden)
        found[down] = AdaptedModule("down", 0, hidden, ffn)
    return found


def _stacked(
    names: tuple[str, ...], part: str, counts: tuple[int, ...], inputs: int
) -> dict[str, AdaptedModule]:
    """Return modules that are one above the other, or the one that is all of them."""
    if len(names) == 1:
        return {names[0]: AdaptedModule(part, 0, sum(counts), inputs)}
    found: dict[str, AdaptedModule] = {}
    before = 0
    for name, count in zip(names, counts, strict=False):
        found[name] = AdaptedModule(part, before, count, inputs)
        before += count
    return found
