"""Tokenizers of GGUF files: the ones that Transformers would write, without it."""

import json
from pathlib import Path
from typing import Any

import gguf
import pytest

from draftwerk.model.checkpoint import gguf_tokenizer
from draftwerk.model.checkpoint.files.gguf_shards import read_gguf
from draftwerk.model.checkpoint.gguf_tokenizer import write_tokenizer
from draftwerk.model.checkpoint.hub import embedded
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.text.tokenizer import TextTokenizer

FIRST = 256
NAMES = ("<|endoftext|>", "<|begin|>", "<|end|>", "<think>", "<|other|>")
WORDS = ("th", "the", "Ġthe", "in", "ing", "12", "Ġ1")
MERGES = ("t h", "th e", "Ġ the", "i n", "in g", "1 2", "Ġ 1")
TEXTS = (
    "the thing  in\n\nthe 12345, it's the <think> <|end|> Zürich\t名前 'LL don't\r\n ",
    "",
    " the",
)


def save(
    path: Path,
    pre: str,
    around: tuple[str, ...] = (),
    template: Any = "{{ messages }}",
    **ids: int,
) -> Path:
    """Write a file of a small byte-level vocabulary, and no weights."""
    letters = sorted(gguf_tokenizer.ALPHABET)
    tokens = [*letters, *NAMES, *WORDS]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    kinds = [1] * FIRST + [3, 3, 3, 4, 3] + [1] * len(WORDS)
    writer.add_token_types(kinds)
    writer.add_token_merges(MERGES)
    writer.add_chat_template(template)
    for name, value in {"bos": 1, "eos": 2, "unknown": 0, **ids}.items():
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", FIRST + value)
    for name in around:
        writer.add_bool(f"tokenizer.ggml.add_{name}_token", True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def both(path: Path, folder: Path) -> list[Path]:
    """Return folders with the tokenizer as it is written here, and by Transformers."""
    folders = [folder / "ours", folder / "theirs"]
    for each in folders:
        each.mkdir()
    write_tokenizer(path, read_gguf(path).fields, folders[0])
    gguf_tokenizer._write_with_transformers(path, folders[1])
    return folders


def document(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "tokenizer.json").read_text())


def test_that_of_the_built_in_model_is_transformers_file(tmp_path: Path):
    ours, theirs = both(embedded(), tmp_path)
    assert document(ours) == document(theirs)
    config = json.loads((theirs / "tokenizer_config.json").read_text())
    found = json.loads((ours / "tokenizer_config.json").read_text())
    assert found == {name: config[name] for name in found}
    template = (ours / "chat_template.jinja").read_text()
    assert template == (theirs / "chat_template.jinja").read_text()


@pytest.mark.parametrize("pre", gguf_tokenizer.SPLITS)
def test_every_pre_tokenizer_is_transformers(pre: str, tmp_path: Path):
    ours, theirs = both(save(tmp_path / "m.gguf", pre), tmp_path)
    expected = document(theirs)
    assert document(ours) == expected


@pytest.mark.parametrize("around", [("bos",), ("eos",), ("bos", "eos")])
def test_tokens_around_a_text_are_transformers(around: tuple[str, ...], tmp_path: Path):
    ours, theirs = both(save(tmp_path / "m.gguf", "llama-bpe", around), tmp_path)
    for text in TEXTS:
        found, expected = (TextTokenizer(each).encode(text) for each in (ours, theirs))
        assert found == expected


def test_named_templates_are_kept(tmp_path: Path) -> None:
    named = [
        {"name": "default", "template": "plain"},
        {"name": "tool_use", "template": "tools"},
        {"name": "rerank", "template": "{query}"},
    ]
    path = save(tmp_path / "m.gguf", "qwen2", template=named)
    write_tokenizer(path, read_gguf(path).fields, tmp_path)
    found = TextTokenizer(tmp_path)
    assert found.render_chat([]) == "plain"
    assert found.render_chat([], tools=[{}]) == "tools"
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert [each["name"] for each in config["chat_template"]] == ["default", "tool_use"]


def test_a_token_that_there_is_not_is_refused(tmp_path: Path):
    path = save(tmp_path / "m.gguf", "qwen2", eos=10_000)
    with pytest.raises(Refused, match="eos_token_id 10256 is none of its"):
        write_tokenizer(path, read_gguf(path).fields, tmp_path)


def test_vocabularies_of_other_kinds_are_transformers_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    asked: list[Path] = []
    monkeypatch.setattr(
        gguf_tokenizer, "_write_with_transformers", lambda path, directory: asked.append(path)
    )
    path = save(tmp_path / "m.gguf", "poro-chat")
    write_tokenizer(path, read_gguf(path).fields, tmp_path)
    assert asked == [path] and not (tmp_path / "tokenizer.json").exists()
