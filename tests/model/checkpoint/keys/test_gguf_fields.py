"""No key of a GGUF's architecture is accepted and ignored.

Each key of llama.cpp's list is changed, added and left out: log-probabilities are those of
Transformers with the same weights and the same change of its config, or the key is refused by name.
"""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import gguf
import pytest
from torch import Tensor

from draftwerk.model.checkpoint.architectures import BY_CLASS
from draftwerk.model.checkpoint.gguf_card import write_card
from draftwerk.model.checkpoint.unsupported import Refused
from tests.model.checkpoint.keys.test_config_keys import NEAR, difference, ours
from tests.support.gguf_walk import (
    DEFAULTS,
    EFFECTS,
    LEFT_OUT,
    OWN_DEFAULTS,
    SIZES,
    USUAL,
    WITHOUT_EFFECT,
    KeyChange,
    key_changes,
)
from tests.support.sampled import whole_and_sampled
from tests.support.tiny_gguf import as_in_file, described, said_by_files, save_gguf
from tests.support.tiny_models import (
    FAMILIES,
    VOCAB,
    has_delta_rule,
    oracle_logits,
    own_rounding,
    tiny_model,
)

pytestmark = pytest.mark.usefixtures("no_tokenizer")
Json = dict[str, Any]
YARN: Json = {
    **{"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0},
    **{"original_max_position_embeddings": 64, "beta_fast": 16.0, "beta_slow": 2.0},
}


def add_yarn(writer: gguf.GGUFWriter) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
    writer.add_rope_scaling_factor(YARN["factor"])
    writer.add_rope_scaling_orig_ctx_len(YARN["original_max_position_embeddings"])
    writer.add_rope_scaling_yarn_beta_fast(YARN["beta_fast"])
    writer.add_rope_scaling_yarn_beta_slow(YARN["beta_slow"])


Add = Callable[[gguf.GGUFWriter], None]
CASES: dict[str, tuple[str, Json, Add]] = {
    family: (family, {}, lambda _: None)
    for family, named in FAMILIES.items()
    if BY_CLASS[named.__name__].gguf is not None
} | {"qwen3, yarn": ("qwen3", {"rope_parameters": YARN}, add_yarn)}
BEYOND = {
    "phi3": (".rope.scaling.factor", ".rope.scale_linear", ".rope.scaling.type"),
    **dict.fromkeys(("gemma3_text", "exaone4"), (".attention.sliding_window",)),
    "olmo2": (".attention.sliding_window",),
}
"""Keys that llama.cpp obeys, and Transformers' class of the family would not."""
SAMPLED = 3
"""Changes of a case in the gate."""


class Case:
    """A family's weights, as a GGUF and as Transformers has them."""

    def __init__(self, name: str, directory: Path) -> None:
        self.family, changes, self.add = CASES[name]
        self.settings = said_by_files(self.family, changes)
        self.architecture = BY_CLASS[FAMILIES[self.family].__name__].gguf_name or ""
        self.path, self.directory = directory / "m.gguf", directory / "out"
        self.directory.mkdir()
        self.base = as_in_file(tiny_model(self.family, **self.settings), self.family)
        scans = has_delta_rule(self.base) or self.family == "granitemoehybrid"
        self.tokens = Random(1).choices(range(VOCAB), k=10 if scans else 40)
        self.fields: dict[str, Any] = {}
        self._save(self._keep)

    def changes(self) -> list[KeyChange]:
        return list(key_changes(self.fields, self.architecture))

    def fault(self, change: KeyChange) -> str:
        """Return what is wrong with how a change is taken; empty if nothing is."""
        self._save(lambda writer: change.apply(writer, self.architecture))
        try:
            found = self._ours()
        except Refused as refused:
            is_named = change.key.removeprefix(".") in str(refused) or change.key in SIZES
            return "" if is_named or "tensor" in str(refused) else f"unnamed: {refused}"
        effect = EFFECTS.get(change.key)
        is_left_out = change.value is LEFT_OUT
        defaults = DEFAULTS | OWN_DEFAULTS.get(self.family, {})
        if effect is not None and (not is_left_out or change.key in defaults):
            value = defaults[change.key] if is_left_out else change.value
            return self._fault_of_effect(change, found, effect(value, self._config()))
        may_be_ignored = change.key in WITHOUT_EFFECT or asks_for_nothing(change)
        is_ignored = may_be_ignored and self._is_near(found, self.base)
        return "" if is_ignored else "accepted and ignored"

    def _fault_of_effect(self, change: KeyChange, found: Tensor, changes: Json) -> str:
        expected = self._expected(changes)
        if expected is not None and self._is_near(found, expected):
            return ""
        if change.key in BEYOND.get(self.family, ()):
            moves = not self._is_near(found, self.base)
            return "" if moves or asks_for_nothing(change) else "accepted and ignored"
        if expected is not None:
            return "not what Transformers computes"
        is_ignored = asks_for_nothing(change) and self._is_near(found, self.base)
        return "" if is_ignored else "accepted, and Transformers does not take it"

    def _is_near(self, found: Tensor, model: Any) -> bool:
        far = difference(found, oracle_logits(model, self.tokens))
        return far < NEAR or far < 2 * own_rounding(deepcopy(model), self.tokens)

    def _config(self) -> Json:
        """Return the config, with a rule of rotation as files have it."""
        config = self.base.config.to_dict()
        rule = config["rope_parameters"]
        if alpha := rule.get("alpha"):
            size = config["head_dim"]
            theta = rule["rope_theta"] * alpha ** (size / (size - 2))
            config["rope_parameters"] = {"rope_type": "default", "rope_theta": theta}
        return config

    def _keep(self, writer: gguf.GGUFWriter) -> None:
        self.fields = dict(writer.kv_data[0])

    def _save(self, more: Add) -> None:
        def add(writer: gguf.GGUFWriter) -> None:
            self.add(writer)
            more(writer)

        save_gguf(self.path, self.family, "F32", more=add, **self.settings)

    def _ours(self) -> Tensor:
        write_card(described(self.path, self.directory), self.directory)
        return ours(self.directory, self.tokens)

    def _expected(self, changes: Json) -> Any:
        try:
            model = tiny_model(self.family, **{**self.settings, **changes})
            if "is_causal" in changes:  # others take it for another thing in some classes
                model.set_attn_implementation("eager")
            missing = model.load_state_dict(self.base.state_dict(), strict=False).missing_keys
            oracle_logits(model, self.tokens[:2])
        except Exception:
            return None
        return None if missing else model


def asks_for_nothing(change: KeyChange) -> bool:
    """Whether a value stands for what is so without it."""
    if change.key in USUAL and change.value is not LEFT_OUT:
        return change.value is USUAL[change.key]
    return change.value is LEFT_OUT or change.value in (0, 1)


def faults(name: str, directory: Path, count: int | None) -> tuple[list[str], int]:
    """Return what is wrong with a family, and how many keys were walked; `count` samples them."""
    case = Case(name, directory)
    changes = case.changes()
    if count is not None:
        changes = Random(name).sample(changes, count)
    said = [(each, case.fault(each)) for each in changes]
    found = [
        f"{change.key} {'left out' if change.value is LEFT_OUT else change.value}: {what}"
        for change, what in said
        if what
    ]
    return found, len({each.key for each in changes})


@whole_and_sampled(CASES, SAMPLED)
def test_no_key_is_accepted_and_ignored(
    name: str, count: int | None, tmp_path: Path, record_property: Any
) -> None:
    found, walked = faults(name, tmp_path, count)
    if count is None:
        record_property("keys of GGUF files", walked)
    assert walked and found == []


@pytest.mark.parametrize("name", ["llama", "gemma2", "qwen3_5_text"])
def test_a_file_whose_tokens_see_all_is_read_so_or_refused(name: str, tmp_path: Path) -> None:
    case = Case(name, tmp_path)
    assert not case.fault(KeyChange(".attention.causal", False))
