"""The files of a tokenizer and its chat template: found where they are, refused by name."""

import json
from pathlib import Path
from shutil import copy
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.text.grammar import grammars_of
from draftwerk.model.text.tokenizer import TextTokenizer
from tests.support.small_tokenizers import byte_level, saved


def test_a_template_in_the_tokenizer_config_is_found(tmp_path: Path):
    saved(byte_level(), tmp_path)
    config = tmp_path / "tokenizer_config.json"
    named = '"chat_template": [{"name": "default", "template": "{{ messages[0].content }}!"}]'
    config.write_text(config.read_text().rstrip().rstrip("}") + f", {named}}}")
    assert (
        TextTokenizer(tmp_path).render_chat([{"role": "user", "content": "the fox & <dog>"}])
        == "the fox & <dog>!"
    )


TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
ASKED = [{"role": "user", "content": "the fox"}]
NAMED = [
    {"name": "default", "template": "default {{ bos_token }}"},
    {"name": "tool_use", "template": "tools {{ tools | length }}"},
    {"name": "rag", "template": "{{ documents }}"},
]
PLACES: dict[str, dict[str, Any]] = {
    "file": {"chat_template.jinja": "file{{ eos_token }}\r\n"},
    "config": {"tokenizer_config.json": {"chat_template": "config {{ tools is none }}"}},
    "named": {"tokenizer_config.json": {"chat_template": NAMED}},
    "file before config": {
        "chat_template.jinja": "file",
        "tokenizer_config.json": {"chat_template": NAMED},
    },
    "folder": {
        "chat_template.jinja": "file é",
        "additional_chat_templates/tool_use.jinja": "folder {{ tools | length }}",
        "additional_chat_templates/other.jinja": "other",
    },
    "folder's default": {"additional_chat_templates/default.jinja": "folder"},
    "two defaults": {
        "chat_template.jinja": "file",
        "additional_chat_templates/default.jinja": "folder",
    },
    "specials": {
        "chat_template.jinja": "{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ image_token }}"
        "{{ boi_token }}{{ pad_token is defined }}",
        "tokenizer_config.json": {
            "bos_token": {"__type": "AddedToken", "content": "<s>", "lstrip": False},
            "eos_token": "</s>",
            "unk_token": None,
            "image_token": "<img>",
            "extra_special_tokens": {"boi_token": "<boi>"},
        },
    },
    "older specials": {
        "chat_template.jinja": "{{ bos_token }}{{ eos_token }}",
        "tokenizer_config.json": {"eos_token": "</s>"},
        "special_tokens_map.json": {"bos_token": "<s>", "eos_token": {"content": "again"}},
    },
    "specials not older": {
        "chat_template.jinja": "{{ bos_token }}{{ eos_token }}",
        "tokenizer_config.json": {"eos_token": "</s>", "added_tokens_decoder": {}},
        "special_tokens_map.json": {"bos_token": "<s>", "eos_token": "again"},
    },
}


@pytest.mark.parametrize("files", PLACES.values(), ids=PLACES)
def test_templates_are_found_where_transformers_finds_them(
    files: dict[str, Any], tmp_path: Path
) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    kind = {"tokenizer_class": "PreTrainedTokenizerFast"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(kind))
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        is_text = isinstance(content, str)
        text = content if is_text else json.dumps(kind | content if "config" in name else content)
        (tmp_path / name).write_bytes(text.encode())
    ours, oracle = TextTokenizer(tmp_path), PreTrainedTokenizerFast.from_pretrained(tmp_path)
    for tools in (None, TOOLS):
        expected = oracle.apply_chat_template(ASKED, tools=tools, tokenize=False)
        assert ours.render_chat(ASKED, tools=tools) == expected


def test_a_processors_template_is_found(tmp_path: Path) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.json").write_text('{"chat_template": "processor"}')
    assert TextTokenizer(tmp_path).render_chat(ASKED) == "processor"


def test_a_template_without_a_default_is_none(tmp_path: Path) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    config = {"chat_template": NAMED[1:]}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert TextTokenizer(tmp_path).chat_template is None


def copied(directory: Path) -> Path:
    """Copy the default model's text files, to be broken."""
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "config.json"):
        copy(locate(None).directory / name, directory)
    return directory


BROKEN = {
    "tokenizer.json": [b"", b"{}", b"no JSON", b'{"model": {"type": "Odd"}}', b"\xff"],
    "tokenizer_config.json": [b"[", b"[]", b'{"bos_token": 3}', b'{"eos_token": {"text": "x"}}'],
    "chat_template.jinja": [b"{% if %}", b"{{ messages", b"\xff", b"{% unknown %}"],
}


@pytest.mark.parametrize(
    ("name", "content"), [(name, each) for name, contents in BROKEN.items() for each in contents]
)
def test_a_broken_file_is_refused_by_name(name: str, content: bytes, tmp_path: Path):
    (copied(tmp_path) / name).write_bytes(content)
    with pytest.raises(Refused, match=f"^{tmp_path}/{name}: "):
        TextTokenizer(tmp_path)


@pytest.mark.parametrize("template", ['"{% if %}"', "3", '[{"name": "default"}]'])
def test_a_broken_template_in_the_config_is_refused(template: str, tmp_path: Path):
    (copied(tmp_path) / "chat_template.jinja").unlink()
    (tmp_path / "tokenizer_config.json").write_text(f'{{"chat_template": {template}}}')
    with pytest.raises(Refused, match=f"^{tmp_path}/tokenizer_config.json: .*chat.template"):
        TextTokenizer(tmp_path)


@pytest.mark.parametrize("gap", [0, 5])
def test_a_tokenizer_larger_than_the_model_is_refused(gap: int, tmp_path: Path):
    path = copied(tmp_path) / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    added = tokenizer["added_tokens"]
    count = 49_152 + gap
    added.append(added[-1] | {"id": count, "content": "<|one more|>"})
    tokenizer["model"]["vocab"]["<|one more|>"] = count
    path.write_text(json.dumps(tokenizer))
    with pytest.raises(Refused, match=f"has {count + 1} tokens, .* vocab_size 49152"):
        TextTokenizer(tmp_path)
    with pytest.raises(Refused, match=f"has {count + 1} tokens"):
        grammars_of(tmp_path, 49_152, (2,))
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": count + 1}))
    assert TextTokenizer(tmp_path).vocab_size == count + 1
