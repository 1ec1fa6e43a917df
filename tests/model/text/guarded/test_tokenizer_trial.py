"""Tokenizers of strangers: what panics, grows or takes too long is refused by its folder."""

import json
import os
import random
from pathlib import Path
from typing import Any

import pytest

from draftwerk.model.checkpoint.hub import cache_directory
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.text.guarded.guard import Limits
from draftwerk.model.text.guarded.tokenizer_task import GROWTH_MAX, growth_of
from draftwerk.model.text.guarded.tokenizer_trial import TRIED, try_tokenizer
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.model.text.vocabulary import FILE, read_tokenizer
from draftwerk.model.text.vocabulary_text import TokenizerFault, VocabularyText
from tests.support.mutated_tokenizers import mutated
from tests.support.small_tokenizers import byte_level

pytestmark = pytest.mark.usefixtures("tried_tokenizers", "own_cache")

Json = dict[str, Any]
LIMITS = Limits(cpu_s=1.0, memory_mib=512)
SOUND: Json = json.loads(byte_level().to_str())


def replacing(pattern: Json, content: str) -> Json:
    return {"type": "Replace", "pattern": pattern, "content": content}


def in_turn(*steps: Json) -> Json:
    return {"type": "Sequence", "normalizers": [*steps]}


GROWING = replacing({"String": "a"}, "a" * 10)
HOSTILE: dict[str, Json] = {
    "panics": {"normalizer": replacing({"Regex": "a*"}, "xyz")},
    "panics of what is empty": {"normalizer": replacing({"Regex": "()"}, "xyz")},
    "grows": {"normalizer": in_turn(*[GROWING] * 7)},
    "grows without end": {"normalizer": in_turn(*[GROWING] * 60)},
    "grows at a letter": {"normalizer": replacing({"String": "q"}, "q" * 10**5)},
    "grows at a word": {"normalizer": replacing({"String": "xyzzy"}, "q" * 10**6)},
    "grows before each letter": {"normalizer": {"type": "Prepend", "prepend": "a" * 10**7}},
    "grows as it is cut": {
        "pre_tokenizer": {"type": "Metaspace", "replacement": "a" * 99, "prepend_scheme": "always"}
    },
    "grows as it is decoded": {
        "decoder": {"type": "Sequence", "decoders": [replacing({"String": "a"}, "a" * 99)] * 5}
    },
    "a bad pattern": {"normalizer": replacing({"Regex": "((("}, "x")},
    "an unknown step": {"normalizer": {"type": "Shell"}},
    "an unknown model": {"model": {"type": "Shell"}},
    "no model": {"model": None},
    "a number without end": {"added_tokens": [{"id": 2**62, "content": "x", "special": True}]},
    "a vocabulary of holes": {
        "model": {"type": "WordLevel", "vocab": {"a": 2**32 - 1}, "unk_token": "a"}
    },
    "merges of what is not there": {
        "model": {"type": "BPE", "vocab": {"a": 0}, "merges": [["a", "b"]]}
    },
    "a pattern that goes back": {
        "pre_tokenizer": {
            "type": "Split", "pattern": {"Regex": "(a+)+\\x00b"}, "behavior": "Isolated",
            "invert": False,
        }
    },
}  # fmt: skip


def written(folder: Path, document: object) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / FILE).write_text(json.dumps(document))
    return folder


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_tokenizer_is_refused_in_a_sentence_that_names_its_folder(
    tmp_path: Path, kind: str
) -> None:
    folder = written(tmp_path / "model", SOUND | HOSTILE[kind])
    with pytest.raises(Refused) as refused:
        try_tokenizer(folder, LIMITS)
    assert str(folder) in str(refused.value) and "\n" not in str(refused.value)
    assert not (cache_directory() / TRIED).exists(), "it is tried again"
    with pytest.raises(Refused):
        TextTokenizer(folder)


def test_what_is_nested_without_end_is_refused(tmp_path: Path) -> None:
    folder = written(tmp_path / "model", SOUND)
    for text in (
        "[" * 10**5 + "]" * 10**5,
        '{"a":' * 10**5 + "1" + "}" * 10**5,
        "",
        "{",
        "\0" * 99,
    ):
        (folder / FILE).write_text(text)
        with pytest.raises(Refused):
            try_tokenizer(folder, LIMITS)
    (folder / FILE).write_text(json.dumps(SOUND))
    (folder / "tokenizer_config.json").write_text("[" * 10**5 + "]" * 10**5)
    with pytest.raises(Refused):
        try_tokenizer(folder, LIMITS)


def test_mutated_files_are_refused_or_encode_and_this_process_goes_on(tmp_path: Path) -> None:
    rng = random.Random(64)
    outcomes: dict[bool, int] = {True: 0, False: 0}
    for number in range(40):
        folder = written(tmp_path / str(number), mutated(SOUND, rng))
        try:
            try_tokenizer(folder, LIMITS)
        except Refused as refused:
            assert str(folder) in str(refused)
            outcomes[False] += 1
            continue
        VocabularyText(read_tokenizer(folder)).encode("It is read, and a text has tokens.")
        outcomes[True] += 1
    assert min(outcomes.values()) > 3


def test_a_sound_tokenizer_is_tried_once(tmp_path: Path) -> None:
    folder = written(tmp_path / "model", SOUND)
    try_tokenizer(folder, LIMITS)
    assert len([*(cache_directory() / TRIED).iterdir()]) == 1
    begun = len(os.listdir("/proc/self/fd"))
    try_tokenizer(folder, LIMITS)
    assert len(os.listdir("/proc/self/fd")) == begun
    written(folder, SOUND | HOSTILE["panics"])
    with pytest.raises(Refused):
        try_tokenizer(folder, LIMITS)


def test_a_panic_on_a_text_is_a_refusal_and_ends_nothing(tmp_path: Path) -> None:
    folder = written(tmp_path / "model", SOUND | HOSTILE["panics"])
    text = VocabularyText(read_tokenizer(folder))
    with pytest.raises(TokenizerFault, match="fails on this text"):
        text.encode("The cat")


def test_growth_is_of_all_steps_together() -> None:
    assert growth_of(None) == growth_of({"type": "NFC"}) == 1
    assert growth_of(replacing({"String": " "}, "▁")) == 1
    assert growth_of(in_turn(*[GROWING] * 3)) == 1000 > GROWTH_MAX
    assert growth_of({"type": "Sequence", "decoders": [replacing({"Regex": "a"}, "bc")] * 2}) == 9
