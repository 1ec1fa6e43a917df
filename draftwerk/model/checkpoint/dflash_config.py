"""DFlash drafters (arXiv 2602.06036): a few layers that guess a whole block of tokens at once.

    context  = hidden_norm(fc [what some of the target's layers come to])    of committed positions
    block    = embeddings of the last token and of as many masks as are guessed
    layers   Qwen3's or Llama's: keys and values are those of the context, then of the block itself,
             which attends without a causal mask
    guess i  = the target's lm_head of norm(what mask i comes to)

Read from safetensors, as their authors' program, SGLang and vLLM have them, or from a GGUF. Layers
with a window are causal unless the config says so of all or none.
"""

from pathlib import Path
from typing import Any, NamedTuple, cast

from draftwerk.model.checkpoint.architectures import check_keys
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.dflash2_config import (
    KEYS,
    SecondConfig,
    second_config,
    second_shapes,
)
from draftwerk.model.checkpoint.dflash_gguf import (
    gguf_tensors,
    is_dflash_gguf,
    read_dflash_gguf,
)
from draftwerk.model.checkpoint.drafter_plan import (
    DrafterPlan,
    check_same,
    check_shapes,
    layers_as,
)
from draftwerk.model.checkpoint.families.architecture import Json
from draftwerk.model.checkpoint.families.windows import SLIDING
from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.files.shards import StoredTensor, stored_tensors
from draftwerk.model.checkpoint.inventory import TensorShape, check_tensors
from draftwerk.model.checkpoint.text_part import EMBEDDING, HEAD
from draftwerk.model.checkpoint.unsupported import Refused

SECTION, LAYER_IDS, MASK, BLOCK = "dflash_config", "target_layer_ids", "mask_token_id", "block_size"
BLOCK_MIN, BLOCK_MAX = 2, 64
"""Tokens of a block: of one nothing is guessed, and a row verifies no more."""
FC, CONTEXT_NORM = "fc.weight", "hidden_norm.weight"
CAUSAL = ("causal", "is_causal")
SECTION_KEYS = (LAYER_IDS, MASK, BLOCK, *CAUSAL, "mask_token", "use_qk_norm", *KEYS)
"""`mask_token` and `use_qk_norm` say again what the first three and the tensors do."""
BESIDE = (
    *(SECTION, MASK, BLOCK, "num_target_layers", "is_causal"),
    *("auto_map", "dtype", "torch_dtype", "architectures"),
)
"""Keys beside those of its layers."""
CLASSES = {"qwen3": "Qwen3ForCausalLM", "llama": "LlamaForCausalLM"}
"""Whose layers a drafter has, by `model_type`."""


class DFlashConfig(NamedTuple):
    """The file's facts of the drafter, and of its layers as a model of these."""

    layers: Json
    target_layers: tuple[int, ...]
    """The target's layers whose outputs are read, ascending."""
    mask_token: int
    block_size: int
    causal: tuple[bool, ...]
    """Whether a layer's block sees what comes before alone."""
    second: SecondConfig | None


def is_dflash(directory: Path) -> bool:
    """Whether a folder, or a GGUF, holds a DFlash drafter."""
    return is_dflash_gguf(directory) or SECTION in (read_json(directory / "config.json") or {})


def plan_dflash(directory: Path, _: Path, target: ModelConfig) -> DrafterPlan:
    """Return what a drafter takes. Raises Refused, naming what does not fit."""
    own = read_dflash_config(directory, target)
    kind, count = "DFlash 2" if own.second else "DFlash", own.layers["num_hidden_layers"]
    return DrafterPlan(
        name=f"a {kind} drafter of {count} layers, which guess {own.block_size - 1} tokens at once",
        tensors=drafter_tensors(directory, own),
        layers=own.layers,
        state_size=len(own.target_layers) * target.hidden_size,
        reads_prompts=True,
        shares_head=True,
    )


def read_dflash_config(directory: Path, target: ModelConfig) -> DFlashConfig:
    """Return a drafter's configuration. Raises Refused, naming what does not fit the target."""
    is_gguf = directory.is_file()
    hf = read_dflash_gguf(directory) if is_gguf else read_json(directory / "config.json") or {}
    if not isinstance(hf.get(SECTION), dict):
        raise Refused(f"config.json: {SECTION} is no object")
    own = cast(Json, hf[SECTION])
    if unknown := sorted(own.keys() - SECTION_KEYS):
        raise Refused(f"config.json: {SECTION}.{unknown[0]} is not supported")
    layers = _layers_of(hf)
    check_same("vocab_size", layers["vocab_size"], target.vocab_size)
    check_same("hidden_size", layers["hidden_size"], target.hidden_size)
    count = target.layer_count
    check_same("num_target_layers", hf.get("num_target_layers", count), count)
    return DFlashConfig(
        layers,
        _target_layers(own.get(LAYER_IDS), layers["num_hidden_layers"], count),
        _within(f"{SECTION}.{MASK}", own.get(MASK, hf.get(MASK)), 0, target.vocab_size - 1),
        _within(BLOCK, own.get(BLOCK, hf.get(BLOCK)), BLOCK_MIN, BLOCK_MAX),
        _causal(
            next((each[name] for each in (own, hf) for name in CAUSAL if name in each), None),
            layers,
        ),
        second_config(own, layers["hidden_size"]),
    )


def drafter_tensors(directory: Path, own: DFlashConfig) -> dict[str, StoredTensor]:
    """Return a drafter's tensors, those of layers by a model's names.

    Raises Refused where one lacks, is unknown or has another shape.
    """
    hidden, vocabulary = own.layers["hidden_size"], own.layers["vocab_size"]
    stored = {
        name.removeprefix("model."): tensor._replace(name=tensor.name or name)
        for name, tensor in (gguf_tensors if directory.is_file() else stored_tensors)(
            directory
        ).items()
    }
    shapes: dict[str, TensorShape] = {
        FC: (hidden, len(own.target_layers) * hidden),
        CONTEXT_NORM: (hidden,),
    }
    if own.second is not None:
        shapes |= second_shapes(own.second, own.layers)
    check_shapes(stored, shapes)
    beside = {name: stored.pop(name) for name in shapes}
    layers = {f"model.{name}": tensor for name, tensor in stored.items()}
    if own_embedding := layers.get(EMBEDDING):
        raise Refused(f"{own_embedding.name}: a DFlash drafter has its target's embeddings")
    of_target = StoredTensor(directory, "F32", (vocabulary, hidden))
    check_tensors(own.layers, {**layers, EMBEDDING: of_target, HEAD: of_target})
    return {**layers, **beside}


def _layers_of(hf: Json) -> Json:
    kind = hf.get("model_type", "qwen3")
    if kind not in CLASSES:
        raise Refused(f"config.json: model_type {kind!r} is not supported (only {list(CLASSES)})")
    own = {key: value for key, value in hf.items() if key not in BESIDE}
    check_keys({**own, "architectures": [CLASSES[kind]]})
    return layers_as(own, CLASSES[kind], kind)


def _target_layers(said: Any, own_count: int, count: int) -> tuple[int, ...]:
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
            f"config.json: {SECTION}.{LAYER_IDS} {said!r} are not ascending layers of 0 to "
            f"{count - 2} of a model of {count}"
        )
    return found


def _within(name: str, value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        raise Refused(f"config.json: {name} is {value!r}, and not from {least} to {most}")
    return value


def _causal(said: Any, layers: Json) -> tuple[bool, ...]:
    if said is not None and not isinstance(said, bool):
        raise Refused(f"config.json: {SECTION}.causal is {said!r}, and not true or false")
    types = layers.get("layer_types") or [""] * layers["num_hidden_layers"]
    return tuple(kind == SLIDING if said is None else said for kind in types)
