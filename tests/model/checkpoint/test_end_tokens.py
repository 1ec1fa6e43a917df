"""What ends a text: all that the files of a model name."""

import json
from pathlib import Path
from typing import Any

import pytest

from draftwerk.model.checkpoint.end_tokens import declared_ends, end_texts, end_tokens
from draftwerk.model.checkpoint.unsupported import Refused
from tests.model.text.samples.families import TEMPLATES

TURNS = {
    "command_a": ("<|END_OF_TURN_TOKEN|>",),
    "exaone4": ("[|endofturn|]",),
    "gemma2": ("<end_of_turn>",),
    "gemma3": ("<end_of_turn>",),
    "gemma4": ("<turn|>",),
    "glm4": (),
    "granite3": ("<|end_of_text|>",),
    "harmony": ("<|call|>", "<|return|>"),
    "hunyuan": ("<|eos|>",),
    "lfm2": ("<|im_end|>",),
    "llama3": ("<|eot_id|>",),
    "ministral3": (),
    "mistral_v3": (),
    "olmo3": ("<|im_end|>",),
    "phi3": ("<|end|>",),
    "phi4_mini": ("<|end|>",),
    "qwen25": ("<|im_end|>",),
    "qwen3": ("<|im_end|>",),
    "qwen3_coder": ("<|im_end|>",),
    "smollm3": ("<|im_end|>",),
}
"""What each family's template writes behind an answer; the others leave it to the configs."""
NAMES = sorted({name for names in TURNS.values() for name in names} | {"<|end|>", "</s>", "<x>"})
HF = {"vocab_size": 100, "eos_token_id": 1}


def save(directory: Path, config: dict[str, Any], template: str = "", special: bool = True) -> Path:
    added = [
        {"id": 10 + index, "content": name, "special": special} for index, name in enumerate(NAMES)
    ]
    (directory / "tokenizer.json").write_text(json.dumps({"added_tokens": added, "model": {}}))
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    if template:
        (directory / "chat_template.jinja").write_text(template)
    return directory


def number(name: str) -> int:
    return 10 + NAMES.index(name)


@pytest.mark.parametrize("family", TEMPLATES)
def test_a_turn_ends_as_its_template_says(family: str, tmp_path: Path) -> None:
    expected = (1, *map(number, TURNS[family]))
    assert end_tokens(save(tmp_path, {}, TEMPLATES[family]), HF, {}) == expected
    (tmp_path / "chat_template.jinja").unlink()
    save(tmp_path, {"chat_template": TEMPLATES[family]})
    assert end_tokens(tmp_path, HF, {}) == expected


def test_all_files_are_asked(tmp_path: Path) -> None:
    save(tmp_path, {"eos_token": "</s>"}, TEMPLATES["llama3"])
    found = end_tokens(tmp_path, HF, {"eos_token_id": [7, 1, 9]})
    assert found == (7, 1, 9, number("</s>"), number("<|eot_id|>"))
    save(tmp_path, {"eos_token": {"content": "<x>"}}, "{{ messages }}")
    assert end_tokens(tmp_path, HF, {}) == (1, number("<x>"))
    assert declared_ends({"vocab_size": 9, "eos_token_id": None}, {}) == ()


def test_tokens_of_a_tokenizer_without_a_file_are_those_of_its_config(tmp_path: Path) -> None:
    listed = {"5": {"content": "<|im_end|>", "special": True}, "6": {"content": "<|end|>"}}
    config = {"added_tokens_decoder": listed, "eos_token": "<|im_end|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert end_tokens(tmp_path, HF, {}) == (1, 5)


def test_text_and_what_is_beyond_the_vocabulary_ends_nothing(tmp_path: Path) -> None:
    save(tmp_path, {"eos_token": "unknown"}, TEMPLATES["qwen3"], special=False)
    assert end_tokens(tmp_path, HF, {}) == (1,)
    save(tmp_path, {"eos_token": "</s>"}, TEMPLATES["qwen3"])
    assert end_tokens(tmp_path, {**HF, "vocab_size": 10}, {}) == (1,)
    (tmp_path / "tokenizer.json").write_bytes(b"[")
    assert end_tokens(tmp_path, HF, {}) == (1,)


@pytest.mark.parametrize("token", [100, -1, "1", 1.5])
def test_a_token_outside_the_vocabulary_is_refused(token: Any) -> None:
    for hf, generation in (({**HF, "eos_token_id": token}, {}), (HF, {"eos_token_id": [token]})):
        with pytest.raises(Refused, match=f"eos_token_id {token!r} is outside vocab_size 100"):
            declared_ends(hf, generation)


def test_a_message_of_harmony_ends_no_answer() -> None:
    assert end_texts(["<|end|>", "<|return|>", "a"]) == {"<|return|>"}
    assert end_texts(["<|end|>", "a"]) == {"<|end|>"}
