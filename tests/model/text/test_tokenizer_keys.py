"""No key of a `tokenizer_config.json` is accepted and ignored: texts have Transformers' tokens.

Each key that its classes take, or that our list has, gets several values.
"""

import inspect
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import transformers
from tokenizers import Tokenizer
from transformers import AutoTokenizer
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

from draftwerk.model.checkpoint.keys.tokenizer_keys import SPACING_CLASSES, TOKENIZER
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.text.vocabulary import read_tokenizer
from draftwerk.model.text.vocabulary_text import VocabularyText
from tests.model.text.test_following_text import first_only
from tests.support.sampled import whole_and_sampled
from tests.support.small_tokenizers import byte_level, sentencepiece_like

pytestmark = pytest.mark.usefixtures("quiet_transformers")
CASES: dict[str, tuple[str, Callable[[], Tokenizer]]] = {
    "bytes": ("PreTrainedTokenizerFast", byte_level),
    "pieces": ("PreTrainedTokenizerFast", sentencepiece_like),
    "GPT-2's bytes": ("GPT2TokenizerFast", byte_level),
    "Llama's pieces": ("LlamaTokenizerFast", first_only),
}
VALUES: dict[str, tuple[Any, ...]] = {
    "added_tokens_decoder": (
        {"0": {"content": "<s>", "special": True, "lstrip": True, "rstrip": True}},
        {"1": {"content": "</s>", "special": False, "single_word": True}},
        {"999": {"content": "<special>", "special": True}},
        {},
    ),
    "extra_special_tokens": ({"odd_token": "<special>"}, ["<special>", "fox"], []),
    "additional_special_tokens": (["<special>", "[PAD]"], []),
    "model_specific_special_tokens": ({"odd_token": "<special>"},),
}
TOKENS = ("<s>", "[PAD]", "fox")
OTHERS = (True, False, 3, "x")
TEXTS = (
    *("the fox", " the  fox", "x <extra> y", "</s>a <s>b", "a\nb", "Köln [PAD] 🦊"),
    *("<special> it", "can 't . do", ""),
)
OF_CLASSES = {"tokenizer_class", "chat_template", "legacy", "backend"}
"""Keys by which Transformers takes another class, or which are read beside other files."""
SAMPLED = 12
"""Changes of a case in the gate."""


def classes() -> Iterator[tuple[str, type]]:
    """Yield the classes that Transformers has for tokenizers, with their names."""
    named = (
        each if isinstance(each, tuple) else (each,) for each in TOKENIZER_MAPPING_NAMES.values()
    )
    for name in sorted({name for names in named for name in names if name}):
        found = getattr(transformers, name, None)
        if inspect.isclass(found):
            yield name, found


def parameters(found: type) -> set[str]:
    return {*inspect.signature(found.__init__).parameters} - {"self", "args", "kwargs"}


def changes() -> list[tuple[str, Any]]:
    """Return keys with values."""
    taken = set[str]().union(*(parameters(each) for _, each in classes()))
    listed = {*TOKENIZER.read, *TOKENIZER.without_effect, *TOKENIZER.only}
    keys = sorted({*taken, *listed, "image_token", "a_word_of_no_list"} - OF_CLASSES)
    usual = {key: TOKENS for key in keys if key.endswith("_token") and not key.startswith("add_")}
    return [(key, value) for key in keys for value in ({**usual, **VALUES}).get(key, OTHERS)]


def theirs(directory: Path) -> object:
    """Return what Transformers makes of texts; None where it does not take the files."""
    try:
        found = AutoTokenizer.from_pretrained(directory)
        return [
            (found.encode(text), found.encode(text, add_special_tokens=False)) for text in TEXTS
        ]
    except BaseException:  # its own, and a panic of the library
        return None


def ours(directory: Path) -> object:
    found = VocabularyText(read_tokenizer(directory))
    return [(found.encode(text), found.encode_continuation(text)) for text in TEXTS]


def save(name: str, directory: Path) -> dict[str, Any]:
    """Write a tokenizer's file, and return its config."""
    kind, made = CASES[name]
    tokenizer = made()
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "config.json").write_text(json.dumps({"model_type": "llama", "vocab_size": 500}))
    named = {"bos_token": "<s>", "eos_token": "</s>"}
    if not kind.startswith("PreTrained"):  # else such a class adds its own
        named |= {"unk_token": "<s>", "pad_token": "<s>"}
    return {"tokenizer_class": kind, **named}


def fault(directory: Path, config: dict[str, Any], key: str, value: Any) -> str:
    """Return what is wrong with how a key is taken; empty if nothing is."""
    path = directory / "tokenizer_config.json"
    path.write_text(json.dumps({**config, key: value}))
    try:
        found = ours(directory)
    except Refused as refused:
        return (
            "" if key in str(refused) else f"{key} {value!r}: refused without its name: {refused}"
        )
    expected = theirs(directory)
    return "" if expected in (None, found) else f"{key} {value!r}: accepted and ignored"


def faults(name: str, directory: Path, count: int | None) -> tuple[list[str], int]:
    """Return what is wrong, and how many keys were walked; `count` samples them."""
    config, walked = save(name, directory), changes()
    if count is not None:
        walked = Random(name).sample(walked, count)
    found = [said for key, value in walked if (said := fault(directory, config, key, value))]
    return found, len({key for key, _ in walked})


@whole_and_sampled(CASES, SAMPLED)
def test_no_key_is_accepted_and_ignored(
    name: str, count: int | None, tmp_path: Path, record_property: Any
) -> None:
    found, walked = faults(name, tmp_path, count)
    if count is None:
        record_property("keys of tokenizer_config.json", walked)
    assert walked and found == []


SURE = {
    "bytes": ("added_tokens_decoder", VALUES["added_tokens_decoder"][0]),
    "pieces": ("pad_token", "[PAD]"),
    "GPT-2's bytes": ("add_prefix_space", True),
    "Llama's pieces": ("add_prefix_space", False),
}


@pytest.mark.parametrize("name", SURE)
def test_a_key_that_is_obeyed_moves_texts(name: str, tmp_path: Path) -> None:
    config = save(name, tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(config))
    before = ours(tmp_path)
    assert before == theirs(tmp_path)
    assert not fault(tmp_path, config, *SURE[name])
    assert ours(tmp_path) != before


def test_classes_that_read_a_space_are_all_there() -> None:
    assert {
        name.removesuffix("Fast")
        for name, each in classes()
        if "add_prefix_space" in parameters(each)
    } == SPACING_CLASSES


def test_a_named_token_beyond_the_models_is_left_out(tmp_path: Path) -> None:
    config = save("bytes", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({**config, "pad_token": "[PAD]"}))
    count = byte_level().get_vocab_size()
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": count}))
    assert read_tokenizer(tmp_path).token_to_id("[PAD]") is None
