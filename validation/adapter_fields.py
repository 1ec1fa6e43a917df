"""Adapters' configs: no field is accepted and ignored.

    python -m validation.adapter_fields

PEFT has to be installed. Each field of its `LoraConfig`, and each key of the project's list, gets
several values beside the same tensors. Log-probabilities are those of PEFT's model, or the field is
refused by its name.
"""

import dataclasses
import sys
import warnings
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from transformers.utils import logging

from draftwerk.model.attention.reference import attend
from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.keys.adapter_keys import ADAPTER
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.lora.lora_card import read_lora
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.reference.kv_pages import allocate
from tests.model.native.models import part, round_of
from tests.support.tiny_adapters import ALL, save_adapter
from tests.support.tiny_models import FAMILIES, save_tiny

FAMILY = "llama"
TOKENS = [5, 9, 9, 3, 17, 40, 2, 11]
NEAR = 1e-4
OTHERS = (True, False, 3, 0.4, "x", ["x"], [3], {"x": 2}, [], {})
VALUES: dict[str, tuple[Any, ...]] = {
    "r": (4, 5, 0),
    "lora_alpha": (8, 3, 1.5, 0),
    "bias": ("none", "all", "lora_only"),
    "peft_type": ("LORA", "IA3", "ADALORA", "LOHA"),
    "task_type": ("CAUSAL_LM", "SEQ_CLS", "FEATURE_EXTRACTION"),
    "init_lora_weights": (
        *(True, False, "gaussian", "eva", "olora", "pissa", "pissa_niter_4", "corda", "loftq"),
        *("orthogonal", "lora_ga"),
    ),
    "target_modules": (
        *(["q_proj"], ["v_proj", "self_attn.o_proj"], list(ALL), "all-linear", ".*_proj", ".*q_.*"),
        *(["model.layers.0.self_attn.q_proj"], ["x"]),
    ),
    "exclude_modules": (["q_proj"], ["x"], ".*down_proj", [], "x"),
    "layers_to_transform": (0, 1, [0], [0, 1], [7], []),
    "layers_pattern": ("layers", ["layers"], "h", []),
    "rank_pattern": ({"q_proj": 4}, {"q_proj": 2}, {"layers.0.self_attn.q_proj": 4}, {}),
    "alpha_pattern": ({"q_proj": 3}, {r"layers\.1\..*up_proj": 7, "up_proj": 1}, {"x": 3}, {}),
    "use_rslora": (True, False),
}
BESIDE: dict[str, dict[str, Any]] = {
    "layers_pattern": {"layers_to_transform": [0, 1]},
    "megatron_core": {"megatron_config": None},
}
"""Fields with which others go."""


def changes(known: set[str]) -> Iterator[tuple[str, Any]]:
    for name in sorted({*known, *ADAPTER.read, *ADAPTER.without_effect, *ADAPTER.only, "a_word"}):
        for value in VALUES.get(name, OTHERS):
            yield name, value


def theirs(base: Path, folder: Path) -> Tensor | None:
    """Return the logits of PEFT's model; None where it takes no such config."""
    try:
        peft: Any = import_module("peft")
        plain = FAMILIES[FAMILY].from_pretrained(base, dtype=torch.float32)
        model: Any = peft.PeftModel.from_pretrained(plain, str(folder))
        with torch.no_grad():
            return model(torch.tensor([TOKENS])).logits[0]
    except Exception:  # whatever it raises
        return None


def ours(base: Path, folder: Path, cache: Path) -> Tensor:
    card = read_lora(folder, read_config(base), cache)
    model = load(str(base), torch.float32, merged=[card])
    pages = allocate(model.config, 64, 16, torch.float32, torch.device("cpu"))
    forward = TorchForward(model.config, model.weights, attend)
    return forward(round_of([part(TOKENS)]), pages)


def distance(one: Tensor, other: Tensor) -> float:
    return float((one.log_softmax(-1) - other.log_softmax(-1)).abs().max())


def fault(base: Path, folder: Path, name: str, value: Any, before: Tensor) -> str:
    """Return what is wrong with how a field is taken; empty if nothing is."""
    fields: dict[str, Any] = {"target_modules": [*ALL], **BESIDE.get(name, {}), name: value}
    save_adapter(folder, read_config(base), **fields)
    try:
        found = ours(base, folder, folder.parent)
    except Refused as refused:
        return "" if name in str(refused) else f"refused without its name: {refused}"
    expected = theirs(base, folder)
    if expected is not None:
        far = distance(found, expected)
        return "" if far < NEAR else f"{far:.2g} off"
    asks_for_nothing = name in ADAPTER.without_effect or value in ADAPTER.only.get(name, ())
    moves = distance(found, before) > NEAR
    return "" if moves or asks_for_nothing else "accepted, and PEFT does not take it"


def main() -> int:
    try:
        peft: Any = import_module("peft")
    except ImportError:
        print("PEFT is not installed: pip install peft")
        return 2
    warnings.simplefilter("ignore")
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    known: set[str] = {each.name for each in dataclasses.fields(peft.LoraConfig)}
    count, faults = 0, 0
    with TemporaryDirectory() as scratch:
        base, folder = Path(scratch, "base"), Path(scratch, "adapter")
        save_tiny(base, FAMILY)
        save_adapter(folder, read_config(base), target_modules=[*ALL])
        before = ours(base, folder, folder.parent)
        for name, value in changes(known):
            count += 1
            if what := fault(base, folder, name, value, before):
                faults += 1
                print(f"{name} {value!r}: {what}", flush=True)
    print(f"{count} values of {len({name for name, _ in changes(known)})} fields: {faults} faults")
    return int(bool(faults))


if __name__ == "__main__":
    sys.exit(main())
