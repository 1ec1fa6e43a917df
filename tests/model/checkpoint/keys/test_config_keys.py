"""No field of a config is accepted and ignored: whatever moves Transformers' texts moves ours.

Each field of each class is changed, and left out, beside the same weights: log-probabilities and
greedy tokens are Transformers', or the config is refused by the field's name.
"""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from transformers import GenerationConfig

from draftwerk.model.checkpoint.hf_config import read_config
from draftwerk.model.checkpoint.keys.config_keys import ONLY, READ, WITHOUT_EFFECT
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.unsupported import Refused
from tests.support.config_walk import Change, changes_of
from tests.support.runners import plain_logits
from tests.support.tiny_models import (
    CASES,
    FAMILIES,
    VOCAB,
    has_delta_rule,
    oracle_logits,
    own_rounding,
    save_tiny,
)

pytestmark = pytest.mark.usefixtures("quiet_transformers")
NEAR = 1e-4
MARGIN = 1e-3
"""Below which two tokens may be the first."""
BEYOND = {"factor", "head_dim", "mamba_chunk_size", "output_router_logits", "pad_token_id"}
"""Fields that are taken so though Transformers fails: YaRN's factor follows from two contexts, the
size of a head from that of all; how it scans is its own, as are losses and padding."""
SCANS = ("mamba", "linear_attention")
ROPE_NAMES = {"rope_parameters", "rope_scaling"}
SAMPLED = 4
"""Changes of a case in the gate."""
AT_ONCE = 12
ABSENT = object()


class Truth(NamedTuple):
    """What Transformers makes of files."""

    model: Any
    logits: Tensor
    leaves_out: bool
    """Whether it has no place for some tensors."""


def theirs(family: str, directory: Path, tokens: list[int]) -> Truth | None:
    """Return what Transformers makes of files; None where it does not take them as they are."""
    try:
        model, info = FAMILIES[family].from_pretrained(
            directory,
            output_loading_info=True,
            attn_implementation="eager",
            dtype=torch.float32,
        )
        if info["missing_keys"] or info["mismatched_keys"]:
            return None
        with torch.no_grad():
            logits = oracle_logits(model.eval(), tokens)
        return Truth(model, logits, bool(info["unexpected_keys"]))
    except Exception:
        return None


def ours(directory: Path, tokens: list[int]) -> Tensor:
    model = load(str(directory), torch.float32)
    return plain_logits(model.config, model.weights, tokens)


def difference(mine: Tensor, truth: Tensor) -> float:
    """Return how far log-probabilities are from another; infinite where a greedy token is."""
    first, second = mine.log_softmax(-1), truth.log_softmax(-1)
    best = second.topk(2).values
    is_clear = best[:, 0] - best[:, 1] > MARGIN
    if (first.argmax(-1) != second.argmax(-1))[is_clear].any():
        return float("inf")
    return float((first - second).abs().max())


def names(refusal: str, change: Change) -> bool:
    """Whether a refusal names the field, or of a rule of rotation another that it goes with."""
    given = change.config.get("rope_parameters") or change.config.get("rope_scaling")
    rule = given if isinstance(given, dict) else {}
    words = change.how.split()
    is_within = change.field in ROPE_NAMES or not {"in", "of", "beside"}.isdisjoint(words)
    inner = [each for each in rule.values() if isinstance(each, dict)]
    beside = {*ROPE_NAMES, *rule}.union(*inner) if is_within else set[str]()
    return any(name in refusal for name in {change.field, *beside})


def is_beyond(change: Change) -> bool:
    """Whether a field may be taken as no change though Transformers does not take it so."""
    scans = any(kind in SCANS for kind in change.config.get("layer_types") or ())
    is_of_others = change.field.startswith("mamba_") and not scans
    is_full = change.config.get("sliding_window") is None  # by the pattern, of 0, EXAONE's class
    divides_by_zero = is_full and (change.field, change.how) == ("layer_types", "left out")
    return change.how == "null" or change.field in BEYOND or is_of_others or divides_by_zero


def fault(family: str, directory: Path, change: Change, tokens: list[int], before: Tensor) -> str:
    """Return what is wrong with how a change is taken; empty if nothing is.

    `before` is what Transformers computes without the change.
    """
    (directory / "config.json").write_text(json.dumps(change.config))
    try:
        found = ours(directory, tokens)
    except Refused as refused:
        if names(str(refused), change):
            return ""
        truth = theirs(family, directory, tokens)
        if truth is None or truth.leaves_out:
            return ""
        return f"refused without its name: {refused}"
    except Exception as error:  # met while it is loaded or computed, when nobody is told why
        return f"neither obeyed nor refused: {error!r}"
    truth = theirs(family, directory, tokens)
    if truth is None:  # it does not take what we do
        is_ignored = difference(found, before) < NEAR and not is_beyond(change)
        return "accepted and ignored, and Transformers does not take it" if is_ignored else ""
    far, model = difference(found, truth.logits), truth.model
    if far > NEAR and far > 2 * own_rounding(model, tokens):
        return f"{far:.2g} off"
    ends = GenerationConfig.from_model_config(model.config).eos_token_id
    listed = ends if isinstance(ends, list) else [ends]
    wanted = {each for each in listed if each is not None and each < VOCAB}
    if {*read_config(directory).eos_token_ids} != wanted:
        return f"texts end with {read_config(directory).eos_token_ids}, not {wanted}"
    return ""


def rope_type(config: dict[str, Any]) -> Any:
    rule = config.get("rope_parameters") or config.get("rope_scaling")
    return rule.get("rope_type") if isinstance(rule, dict) else None


class Walk:
    """A case's changes against Transformers."""

    def __init__(self, family: str, directory: Path, tokens: list[int], before: Tensor) -> None:
        self.family, self.directory, self.tokens = family, directory, tokens
        self.path, self.before = directory / "config.json", before
        self.config: dict[str, Any] = json.loads(self.path.read_text())
        self.read = read_config(directory)

    def faults(self, changes: list[Change]) -> Iterator[str]:
        """Yield what is wrong, by halves where several changes were made at once."""
        said = self._fault(self._joined(changes))
        if said and len(changes) == 1:
            yield f"{changes[0].field} {changes[0].how}: {said}"
        elif said:
            half = len(changes) // 2
            yield from self.faults(changes[:half])
            yield from self.faults(changes[half:])

    def together(self, changes: list[Change]) -> list[list[Change]]:
        """Return changes as they are made at once: those that are none to what is read of files.

        Transformers' answer to them has to be none either.
        """
        alone, pools = list[list[Change]](), list[dict[str, Change]]()
        for change in changes:
            if not self._is_without_effect(change):
                alone.append([change])
                continue
            free = (each for each in pools if change.field not in each and len(each) < AT_ONCE)
            pool = next(free, None)
            if pool is None:
                pools.append(pool := {})
            pool[change.field] = change
        return [*alone, *([*each.values()] for each in pools)]

    def _fault(self, change: Change) -> str:
        return fault(self.family, self.directory, change, self.tokens, self.before)

    def _joined(self, changes: list[Change]) -> Change:
        if len(changes) == 1:
            return changes[0]
        config = {**self.config}
        for field, _, changed in changes:
            config.pop(field, None)
            config |= {field: changed[field]} if field in changed else {}
        return Change(" and ".join(each.field for each in changes), "at once", config)

    def _is_without_effect(self, change: Change) -> bool:
        differ = [
            name
            for name in {*self.config, *change.config}
            if self.config.get(name, ABSENT) != change.config.get(name, ABSENT)
        ]
        if differ != [change.field]:
            return False
        self.path.write_text(json.dumps(change.config))
        try:
            return read_config(self.directory) == self.read
        except Exception:
            return False


def faults(name: str, directory: Path, count: int | None = None) -> tuple[list[str], int]:
    """Return what is wrong with a case, and how many fields were walked; `count` samples them."""
    family, settings = CASES[name]
    model = save_tiny(directory, family, **settings)
    (directory / "generation_config.json").unlink()
    scans = has_delta_rule(model) or family == "granitemoehybrid"
    tokens = Random(1).choices(range(VOCAB), k=10 if scans else 40)
    is_first = next(each for each, (of, _) in CASES.items() if of == family) == name
    listed = {*READ, *WITHOUT_EFFECT, *ONLY} if is_first else set[str]()
    walk = Walk(family, directory, tokens, oracle_logits(model, tokens))
    changes = list(changes_of(family, walk.config, listed))
    if scans:  # token by token Transformers turns the first ones by the list of short texts
        changes = [each for each in changes if rope_type(each.config) != "longrope"]
    if count is not None:
        changes = Random(name).sample(changes, count)
    shuffled = Random(name).sample(changes, len(changes))
    found = [said for each in walk.together(shuffled) for said in walk.faults(each)]
    return found, len({each.field for each in changes})


@pytest.mark.grid
@pytest.mark.parametrize("name", CASES)
def test_no_field_is_accepted_and_ignored(
    name: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    found, walked = faults(name, tmp_path)
    record_property("fields of config.json", walked)
    assert found == []


@pytest.mark.parametrize("name", [name for name, (_, changes) in CASES.items() if not changes])
def test_no_field_of_a_sample_is_accepted_and_ignored(name: str, tmp_path: Path) -> None:
    found, walked = faults(name, tmp_path, SAMPLED)
    assert walked and found == []
