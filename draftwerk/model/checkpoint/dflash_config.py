"""The `config.json` of a DFlash drafter's folder, and whether it fits a target, without torch.

A drafter (arXiv 2602.06036) has a few layers of Qwen3 or Llama and neither embedding nor lm_head.
Its layers with a window are causal, as those of published drafters are, unless the config says so
of all or none.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from draftwerk.model.checkpoint.architectures import check_keys, completed
from draftwerk.model.checkpoint.families.architecture import Json, count_of
from draftwerk.model.checkpoint.families.windows import SLIDING
from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.files.shards import StoredTensor, stored_tensors
from draftwerk.model.checkpoint.inventory import check_tensors
from draftwerk.model.checkpoint.rope_fields import check_rope
from draftwerk.model.checkpoint.supported import check_supported
from draftwerk.model.checkpoint.text_part import EMBEDDING, HEAD
from draftwerk.model.checkpoint.unsupported import Refused

SECTION, TAPS, MASK, BLOCK = "dflash_config", "target_layer_ids", "mask_token_id", "block_size"
BLOCK_MIN, BLOCK_MAX = 2, 64
"""Tokens of a block: of one nothing is guessed, and a row verifies no more."""
FC, CONTEXT_NORM = "fc.weight", "hidden_norm.weight"
SECTION_KEYS = (TAPS, MASK, BLOCK, "causal", "mask_token", "use_qk_norm")
"""The last two say again what the first three and the tensors do."""
BESIDE = (
    SECTION,
    MASK,
    BLOCK,
    "num_target_layers",
    "is_causal",
    "auto_map",
    "dtype",
    "torch_dtype",
)
"""Keys beside those of its layers."""
CLASSES = {"qwen3": "Qwen3ForCausalLM", "llama": "LlamaForCausalLM"}
"""Whose layers a drafter has, by `model_type`."""


class DFlashConfig(NamedTuple):
    """The file's facts of the drafter, and of its layers as a model of these."""

    layers: Json
    taps: tuple[int, ...]
    """The target's layers whose outputs are read, ascending."""
    mask_token: int
    block_size: int
    causal: tuple[bool, ...]
    """Whether a layer's block sees what comes before alone."""


def is_dflash(directory: Path) -> bool:
    """Whether a folder holds a DFlash drafter."""
    return SECTION in (read_json(directory / "config.json") or {})


def read_dflash_config(directory: Path, target: Json) -> DFlashConfig:
    """Return a drafter's configuration. Raises Refused, naming what does not fit the target."""
    hf = read_json(directory / "config.json") or {}
    section = hf.get(SECTION)
    if not isinstance(section, dict):
        raise Refused(f"config.json: {SECTION} is no object")
    own = cast(Json, section)
    if unknown := sorted(own.keys() - SECTION_KEYS):
        raise Refused(f"config.json: {SECTION}.{unknown[0]} is not supported")
    layers = _layers_of(hf)
    for name in ("vocab_size", "hidden_size"):
        if layers[name] != target[name]:
            raise Refused(
                f"config.json: {name} is {layers[name]}, and the model's is {target[name]}"
            )
    count = target["num_hidden_layers"]
    if hf.get("num_target_layers", count) != count:
        said = hf["num_target_layers"]
        raise Refused(f"config.json: num_target_layers is {said!r}, and the model has {count}")
    return DFlashConfig(
        layers,
        _taps(own.get(TAPS), layers["num_hidden_layers"], count),
        _within(f"{SECTION}.{MASK}", own.get(MASK, hf.get(MASK)), 0, target["vocab_size"] - 1),
        _within(BLOCK, own.get(BLOCK, hf.get(BLOCK)), BLOCK_MIN, BLOCK_MAX),
        _causal(own.get("causal", hf.get("is_causal")), layers),
    )


def drafter_tensors(directory: Path, config: DFlashConfig) -> dict[str, StoredTensor]:
    """Return a drafter's tensors, those of layers by a model's names.

    Raises Refused where one lacks, is unknown or has another shape.
    """
    hf = config.layers
    hidden, vocabulary = hf["hidden_size"], (hf["vocab_size"], hf["hidden_size"])
    stored = {
        name.removeprefix("model."): tensor._replace(name=name)
        for name, tensor in stored_tensors(directory).items()
    }
    for name, shape in ((FC, (hidden, len(config.taps) * hidden)), (CONTEXT_NORM, (hidden,))):
        if name not in stored:
            raise Refused(f"it lacks {name}")
        if stored[name].shape != shape:
            raise Refused(f"{name} is {list(stored[name].shape)}, not {list(shape)}")
    beside = {name: stored.pop(name) for name in (FC, CONTEXT_NORM)}
    layers = {f"model.{name}": tensor for name, tensor in stored.items()}
    of_target = StoredTensor(directory, "F32", vocabulary)
    check_tensors(hf, {**layers, EMBEDDING: of_target, HEAD: of_target})
    return {**layers, **beside}


def _layers_of(hf: Mapping[str, Any]) -> Json:
    kind = hf.get("model_type", "qwen3")
    if kind not in CLASSES:
        raise Refused(f"config.json: model_type {kind!r} is not supported (only {list(CLASSES)})")
    own = {key: value for key, value in hf.items() if key not in BESIDE}
    alone = {"architectures": [CLASSES[kind]], "model_type": kind, "tie_word_embeddings": False}
    own = {**own, **alone}
    check_keys(own)
    own = completed(own)
    check_supported(own)
    check_rope(own)
    return own


def _taps(said: Any, own_count: int, count: int) -> tuple[int, ...]:
    """Return the target's layers; a config that names none has them at equal distances."""
    if said is None:
        first, last = (1, count - 3) if own_count > 1 else (count // 2, count // 2)
        steps = max(1, own_count - 1)
        said = [round(first + i * (last - first) / steps) for i in range(own_count)]
    whole = isinstance(said, list) and all(type(each) is int for each in cast(list[Any], said))
    found = tuple(cast(list[int], said)) if whole else ()
    # What the last layer comes to is read by the model's head alone.
    if not found or list(found) != sorted({*found}) or not 0 <= found[0] <= found[-1] < count - 1:
        raise Refused(
            f"config.json: {SECTION}.{TAPS} {said!r} are not ascending ones of the layers 0 to "
            f"{count - 2} of a model of {count}"
        )
    return found


def _within(name: str, value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise Refused(f"config.json: {name} is {value!r}, and not from {least} to {most}")
    return value


def _causal(said: Any, layers: Json) -> tuple[bool, ...]:
    count = count_of(layers, "num_hidden_layers")
    if said is not None and not isinstance(said, bool):
        raise Refused(f"config.json: {SECTION}.causal is {said!r}, and not true or false")
    types = layers.get("layer_types") or [""] * count
    return tuple(kind == SLIDING if said is None else said for kind in types)
