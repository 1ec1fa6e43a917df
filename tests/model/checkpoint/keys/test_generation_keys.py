"""No key of a `generation_config.json` is accepted and ignored.

Each field of Transformers' class, and each key of our list, gets several values. What moves the
tokens or the distributions of its `generate` moves ours alike, or is refused by its name.
"""

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from transformers import GenerationConfig

from draftwerk.model.checkpoint.hf_config import read_generation
from draftwerk.model.checkpoint.keys.generation_keys import GENERATION
from draftwerk.model.checkpoint.recommended import recommended, suppressed
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.speculative.parameters.bounds import BIAS_BOUND
from draftwerk.speculative.sampling import Sampling, edited
from tests.support.distributions import probabilities
from tests.support.sampled import whole_and_sampled
from tests.support.tiny_models import VOCAB, tiny_model

pytestmark = pytest.mark.usefixtures("quiet_transformers")
PROMPT, STEPS = [5, 9, 9, 3, 17], 6
BASES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False, "top_k": 0, "eos_token_id": 2},
    "sampled": {"do_sample": True, "top_k": 0, "eos_token_id": 2},
}
OTHERS = (True, False, 3, 0.4, 1.7, "x", [3], [[3]])
VALUES: dict[str, tuple[Any, ...]] = {
    "eos_token_id": (7, [2, 40], None),
    "suppress_tokens": ([11, 50, 3], [], None),
    "bad_words_ids": ([[11], [3]], [[11, 3]], None),
    "do_sample": (True, False),
    "temperature": (0.3, 1.9, 1.0),
    "top_k": (5, 0, 50),
    "top_p": (0.4, 1.0),
    "min_p": (0.2, 0.0),
    "repetition_penalty": (1.7, 0.6, 1.0),
}
NOT_OF_ONE_TEXT = {"num_return_sequences", "length_penalty", "early_stopping"}
"""Keys of beams and branches, which requests ask for."""
LENGTHS = {"max_length", "max_new_tokens", "max_time"}
SAMPLED = 25
"""Changes of a case in the gate."""


def changes() -> list[tuple[str, Any]]:
    """Return keys with values."""
    listed = {*GENERATION.read, *GENERATION.without_effect, *GENERATION.only}
    keys = sorted({*vars(GenerationConfig()), *listed, "a_word_of_no_list"})
    return [(key, value) for key in keys for value in VALUES.get(key, OTHERS)]


class Texts:
    """A model, and what is made of a prompt under a generation config."""

    def __init__(self) -> None:
        self.model = tiny_model("llama", eos_token_id=2)

    def theirs(self, fields: dict[str, Any]) -> list[dict[int, float]] | None:
        """Return the distribution of each of some tokens; None where Transformers refuses."""
        try:
            config = GenerationConfig.from_dict(dict(fields))
            config.update(max_new_tokens=STEPS, max_length=None, pad_token_id=0)
            config.update(return_dict_in_generate=True, output_scores=True, max_time=None)
            torch.manual_seed(3)
            found = self.model.generate(torch.tensor([PROMPT]), generation_config=config)
            self.tokens = found.sequences[0, len(PROMPT) :].tolist()
            if config.do_sample is False or config.do_sample is None:
                return [{int(scores[0].argmax()): 1.0} for scores in found.scores]
            return [
                {at: share for at, share in enumerate(scores[0].softmax(0).tolist()) if share}
                for scores in found.scores
            ]
        except Exception:
            return None

    def ours(self, directory: Path) -> list[dict[int, float]]:
        """Return the same behind the tokens that Transformers drew."""
        barred = tuple((token, -BIAS_BOUND) for token in suppressed(directory, VOCAB))
        given = recommended(directory)[0].given()
        sampling = Sampling(logit_bias=barred, **given)
        ends = read_generation(directory).get("eos_token_id")
        text, found = list[int](), list[dict[int, float]]()
        for token in self.tokens:
            with torch.no_grad():
                logits = self.model(torch.tensor([[*PROMPT, *text]])).logits[0, -1].tolist()
            found.append(probabilities(edited(logits, PROMPT, text, sampling), sampling))
            text.append(token)
            if token in (ends if isinstance(ends, list) else [ends]):
                break
        return found


def are_near(found: list[dict[int, float]], expected: list[dict[int, float]]) -> bool:
    return len(found) == len(expected) and all(
        abs(one.get(token, 0) - other.get(token, 0)) < 1e-4
        for one, other in zip(found, expected, strict=True)
        for token in {*one, *other}
    )


def fault(texts: Texts, directory: Path, fields: dict[str, Any], key: str) -> str:
    """Return what is wrong with how a key is taken; empty if nothing is."""
    (directory / "generation_config.json").write_text(json.dumps(fields))
    expected = texts.theirs({k: v for k, v in fields.items() if k not in NOT_OF_ONE_TEXT | LENGTHS})
    if expected is None:
        texts.tokens = [1] * STEPS
    try:
        found = texts.ours(directory)
    except Refused as refused:
        is_named = key in str(refused)
        return "" if is_named else f"{key} {fields[key]!r}: refused without its name: {refused}"
    if expected is None or are_near(found, expected):
        return ""
    return f"{key} {fields[key]!r}: not what Transformers draws from"


def faults(name: str, directory: Path, count: int | None) -> tuple[list[str], int]:
    """Return what is wrong, and how many keys were walked; `count` samples them."""
    texts, walked = Texts(), changes()
    if count is not None:
        walked = Random(name).sample(walked, count)
    said = [fault(texts, directory, {**BASES[name], key: value}, key) for key, value in walked]
    return [each for each in said if each], len({key for key, _ in walked})


@whole_and_sampled(BASES, SAMPLED)
def test_no_key_is_accepted_and_ignored(
    name: str, count: int | None, tmp_path: Path, record_property: Any
) -> None:
    found, walked = faults(name, tmp_path, count)
    if count is None:
        record_property("keys of generation_config.json", walked)
    assert walked and found == []
