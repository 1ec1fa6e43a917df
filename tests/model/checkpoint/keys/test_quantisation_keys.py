"""No key of a `quantization_config` is accepted and ignored, in any method.

Each parameter of Transformers' class for a method, and each key of our lists, gets several values:
the matrices are others, the key is known without effect, or it is refused by its name.
"""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import torch
from torch import Tensor
from transformers.utils import quantization_config as classes

from draftwerk.model.checkpoint.keys.known_keys import KnownKeys
from draftwerk.model.checkpoint.keys.quantisation_keys import (
    BY_METHOD,
    COMPRESSED_GROUP,
    COMPRESSED_WEIGHTS,
    SPARSITY,
)
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.unsupported import Refused
from tests.support.changed_files import say
from tests.support.quantised_checkpoints import FORMS, save_mxfp4, save_quantised
from tests.support.sampled import whole_and_sampled

CLASSES = {
    "gptq": classes.GPTQConfig,
    "awq": classes.AwqConfig,
    "fp8": classes.FineGrainedFP8Config,
    "mxfp4": classes.Mxfp4Config,
    "compressed-tensors": classes.CompressedTensorsConfig,
}
PARTS: dict[str, KnownKeys] = {
    "group": COMPRESSED_GROUP,
    "weights": COMPRESSED_WEIGHTS,
    "sparsity_config": SPARSITY,
}
OF_WEIGHTS = (  # of compressed-tensors' own class
    *("num_bits", "type", "symmetric", "group_size", "strategy", "block_structure", "dynamic"),
    *("actorder", "scale_dtype", "zp_dtype", "observer", "observer_kwargs"),
)
VALUES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("checkpoint_format", "format"), ("gptq", "gptq_v2", "marlin", "dense")),
    "version": ("gemm", "gemv", "GEMM", "0.3"),
    "actorder": ("weight", "group", True, None),
    "strategy": ("tensor", "channel", "group", "block", "token", None),
    "targets": (["Linear"], ["re:.*q_proj"], []),
}
OTHERS = (True, False, 0, 4, 8, 64, "x", ["x"], {"x": 1}, {})
SAID_AGAIN = {
    "desc_act": "g_idx says it",
    "actorder": "weight_g_idx says it",
    "fmt": "the tensors' type says it",
    "format": "zeros of 8 stand for themselves in both, and tensors have names of their own",
    "checkpoint_format": "the same",
    "targets": "all layers are the only ones",
    "strategy": "the scales' shape says it, and must not contradict it",
    "sparsity_config": "what asks for nothing",
    "version": "of a program, or the one layout",
    "weight_block_size": "the scales' shape says it, and must not contradict it",
    "block_structure": "what asks for nothing",
}
"""Keys that are read, and why another value may change no matrix."""
NAMES = (*FORMS, "mxfp4")
SAMPLED = 12


def changes(config: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield keys, each with a config in which it has another value."""
    method = config["quant_method"]
    listed = BY_METHOD[method]
    own = {*inspect.signature(CLASSES[method].__init__).parameters} - {"self", "kwargs"}
    for key in sorted({*own, *known(listed), *config, "a_word_of_no_list"} - {"quant_method"}):
        for value in (*VALUES.get(key, OTHERS), None):
            if key not in config or value != config[key]:
                yield key, {**config, key: value}
        yield key, {name: value for name, value in config.items() if name != key}
    if method != "compressed-tensors":
        return
    (name, group), *_ = config["config_groups"].items()
    for part, keys in PARTS.items():
        fields = OF_WEIGHTS if part == "weights" else ()
        for key in sorted({*known(keys), *fields, "a_word_of_no_list"}):
            for value in (*VALUES.get(key, OTHERS), None):
                if part == "sparsity_config":
                    yield key, {**config, part: {"format": "dense", key: value}}
                    continue
                held = group["weights"] if part == "weights" else group
                if key in held and value == held[key]:
                    continue
                within = {**group["weights"], key: value}
                changed = {**group, key: value} if part == "group" else {**group, part: within}
                yield key, {**config, "config_groups": {name: changed}}


def known(keys: KnownKeys) -> set[str]:
    return {*keys.read, *keys.without_effect, *keys.only}


def reason(key: str) -> bool:
    """Whether a key may stand at another value and change no matrix."""
    lists = (*BY_METHOD.values(), *PARTS.values())
    return key in SAID_AGAIN or any(key in each.without_effect for each in lists)


def matrices(directory: Path) -> list[Tensor]:
    weights = load(str(directory), torch.float32).weights
    return [weights.layers[0].qkv, weights.layers[1].output, weights.lm_head]


def fault(directory: Path, before: list[Tensor], key: str, config: dict[str, Any]) -> str:
    """Return what is wrong with how a key is taken; empty if nothing is."""
    say(directory, quantization_config=config)
    try:
        found = matrices(directory)
    except Refused as refused:
        is_named = any(each in str(refused) for each in (key, "config_groups", "tensor", "layers."))
        return "" if is_named else f"{key}: refused without its name: {refused}"
    moves = any(not torch.equal(one, other) for one, other in zip(found, before, strict=True))
    if moves or reason(key) or asks_for_nothing(config, key):
        return ""
    return f"{key} in {config}: accepted and ignored"


def asks_for_nothing(config: dict[str, Any], key: str) -> bool:
    listed = [BY_METHOD[config["quant_method"]], *PARTS.values()]
    groups = config.get("config_groups") or {}
    parts = [config, config.get("sparsity_config") or {}, *groups.values()]
    parts += [each.get("weights") or {} for each in groups.values()]
    values = [each[key] for each in parts if key in each]
    return all(
        value is None or any(value in keys.only.get(key, ()) for keys in listed) for value in values
    )


def faults(name: str, directory: Path, count: int | None) -> tuple[list[str], int]:
    """Return what is wrong, and how many keys were walked; `count` samples them."""
    if name == "mxfp4":
        save_mxfp4(directory)
    else:
        save_quantised(directory, name)
    held = json.loads((directory / "config.json").read_text())
    before, walked = matrices(directory), list(changes(held["quantization_config"]))
    if count is not None:
        walked = Random(name).sample(walked, count)
    said = [fault(directory, before, key, config) for key, config in walked]
    return [each for each in said if each], len({key for key, _ in walked})


@whole_and_sampled(NAMES, SAMPLED)
def test_no_key_is_accepted_and_ignored(
    name: str, count: int | None, tmp_path: Path, record_property: Any
) -> None:
    found, walked = faults(name, tmp_path, count)
    if count is None:
        record_property("keys of quantization_config", walked)
    assert walked and found == []
