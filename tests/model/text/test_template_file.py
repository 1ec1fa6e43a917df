"""The files of a tokenizer and its chat template: found where they are, refused by name."""

import json
from pathlib import Path
from shutil import copy

import pytest

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
