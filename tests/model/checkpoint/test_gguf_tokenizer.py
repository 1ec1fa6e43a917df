"""Tokenizers of GGUF files: the ones that Transformers would write, without it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unicodedata import normalize

import gguf
import pytest
import transformers

from draftwerk.model.checkpoint import gguf_tokenizer
from draftwerk.model.checkpoint.files.gguf_shards import read_gguf
from draftwerk.model.checkpoint.gguf_tokenizer import write_tokenizer
from draftwerk.model.checkpoint.hub import embedded
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vocabularies.byte_level import ALPHABET, Around
from draftwerk.model.checkpoint.vocabularies.piece_file import read_pieces
from draftwerk.model.checkpoint.vocabularies.sentence_pieces import Pieces, piece_document
from draftwerk.model.checkpoint.vocabularies.splits import COMPOSED, SPLITS, WHOLE_WORDS
from draftwerk.model.text.tokenizer import TextTokenizer
from tests.model.checkpoint.vocabularies.oracles import random_texts, trained
from tests.support.gguf_files import finish

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
    add: Mapping[str, bool] = {},
    template: Any = "{{ messages }}",
    words: tuple[str, ...] = (),
    **ids: int,
) -> Path:
    """Write a file of a small byte-level vocabulary, and no weights."""
    letters = sorted(ALPHABET)
    tokens = [*letters, *NAMES, *WORDS, *words]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    kinds = [1] * FIRST + [3, 3, 3, 4, 3] + [1] * len(WORDS + words)
    writer.add_token_types(kinds)
    writer.add_token_merges(MERGES)
    writer.add_chat_template(template)
    for name, value in {"bos": 1, "eos": 2, "unknown": 0, **ids}.items():
        writer.add_uint32(f"tokenizer.ggml.{name}_token_id", FIRST + value)
    for name, is_put in add.items():
        writer.add_bool(f"tokenizer.ggml.add_{name}_token", is_put)
    finish(writer)
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
    expected = document(theirs)
    # It reads digits as GPT-2's; those of this family stand alone.
    assert len(document(ours).pop("pre_tokenizer")["pretokenizers"]) == 3
    assert document(ours) | {"pre_tokenizer": expected["pre_tokenizer"]} == expected
    config = json.loads((theirs / "tokenizer_config.json").read_text())
    found = json.loads((ours / "tokenizer_config.json").read_text())
    assert found == {name: config[name] for name in found}
    template = (ours / "chat_template.jinja").read_text()
    assert template == (theirs / "chat_template.jinja").read_text()


TRANSFORMERS = ("llama-bpe", "llama3", "llama-v3", "smaug-bpe", "qwen2", "gpt-2")
"""Splits that Transformers reads as they are written."""


@pytest.mark.parametrize("pre", TRANSFORMERS)
def test_a_pre_tokenizer_is_transformers(pre: str, tmp_path: Path):
    path = save(tmp_path / "m.gguf", pre, add={"bos": False})
    ours, theirs = both(path, tmp_path)
    expected = document(theirs)
    # It does not read that whole words need no merges.
    expected["model"]["ignore_merges"] = pre in WHOLE_WORDS
    if pre in COMPOSED:  # nor that Qwen2's own class composes characters first
        expected["normalizer"] = {"type": "NFC"}
    assert document(ours) == expected


@pytest.mark.parametrize("pre", SPLITS)
def test_every_pre_tokenizer_is_one_of_the_table(pre: str, tmp_path: Path) -> None:
    path = save(tmp_path / "m.gguf", pre)
    write_tokenizer(path, read_gguf(path).fields, tmp_path)
    found = TextTokenizer(tmp_path)
    for text in TEXTS:
        assert found.decode(found.encode_continuation(text), skip_special=False) == text
    begins = found.encode("the")[0] == FIRST + 1
    assert begins == (pre in WHOLE_WORDS)


COMPOSING = {
    "qwen2": "Qwen2Tokenizer",
    "qwen35": "Qwen3_5Tokenizer",
    "command-r": "CohereTokenizer",
    "olmo": "GPTNeoXTokenizer",
}
"""Classes of Transformers that compose characters first, by the names of their splits."""
ACCENTED = (" the thing in\n\nthe 12345, Zürich\t名前 \r\n ", "Ångström, ŋé ﬁ①", "e\u0301\u0323")


@pytest.mark.parametrize("pre", sorted(COMPOSED))
def test_text_in_any_normal_form_has_the_tokens_of_the_models_directory(
    pre: str, tmp_path: Path
) -> None:
    path = save(tmp_path / "m.gguf", pre)
    fields = read_gguf(path).fields
    write_tokenizer(path, fields, tmp_path)
    numbers = {token: index for index, token in enumerate(fields["tokenizer.ggml.tokens"])}
    merges = [tuple(each.split(" ")) for each in MERGES]
    kind = getattr(transformers, COMPOSING[pre])
    kind(vocab=numbers, merges=merges).save_pretrained(tmp_path / "directory")
    ours, theirs = TextTokenizer(tmp_path), TextTokenizer(tmp_path / "directory")
    for text in ACCENTED:
        composed = ours.encode_continuation(normalize("NFC", text))
        assert ours.encode_continuation(normalize("NFD", text)) == composed
        for form in ("NFC", "NFD", "NFKD"):
            given = normalize(form, text)
            assert ours.encode_continuation(given) == theirs.encode_continuation(given)


def test_tokens_that_are_no_letters_of_bytes_stay_in_a_vocabulary(tmp_path: Path) -> None:
    path = save(tmp_path / "m.gguf", "command-r", words=("🦊", "日本"))
    write_tokenizer(path, read_gguf(path).fields, tmp_path)
    found = TextTokenizer(tmp_path)
    assert found.decode(found.encode_continuation("🦊 日本 the")) == "🦊 日本 the"
    token = found.tokenizer.token_to_id("🦊")
    assert token is not None and found.token_bytes(token) == "🦊".encode()


def test_an_unknown_pre_tokenizer_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "m.gguf", "of-tomorrow")
    with pytest.raises(Refused, match=r"tokenizer.ggml.pre 'of-tomorrow' is not supported"):
        write_tokenizer(path, read_gguf(path).fields, tmp_path)


@pytest.mark.parametrize("around", [("bos",), ("eos",), ("bos", "eos")])
def test_tokens_around_a_text_are_transformers(around: tuple[str, ...], tmp_path: Path):
    ours, theirs = both(
        save(tmp_path / "m.gguf", "llama-bpe", {"bos": False} | dict.fromkeys(around, True)),
        tmp_path,
    )
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
    path = save(tmp_path / "m.gguf", "default")
    write_tokenizer(path, read_gguf(path).fields, tmp_path)
    assert asked == [path] and not (tmp_path / "tokenizer.json").exists()


def metadata(pieces: Pieces, **more: Any) -> dict[str, Any]:
    """Return a file's metadata of pieces."""
    fields = {"model": "llama", "tokens": pieces.texts, "scores": pieces.scores}
    fields |= {"token_type": pieces.kinds, "bos_token_id": 1, "eos_token_id": 2}
    fields |= {"unknown_token_id": 0, **more}
    return {f"tokenizer.ggml.{name}": value for name, value in fields.items()}


@pytest.mark.parametrize("has_prefix", [None, True, False])
def test_pieces_have_the_numbers_that_sentencepiece_gives(
    has_prefix: bool | None, tmp_path: Path
) -> None:
    sentencepiece = pytest.importorskip("sentencepiece")
    kind = {"model_type": "bpe", "remove_extra_whitespaces": False}
    data = trained(**kind, add_dummy_prefix=has_prefix is not False, user_defined_symbols=["<u>"])
    oracle = sentencepiece.SentencePieceProcessor(model_proto=data)
    (tmp_path / "tokenizer.model").write_bytes(data)
    pieces = read_pieces(tmp_path / "tokenizer.model")
    fields = {} if has_prefix is None else {"add_space_prefix": has_prefix}
    (ours := tmp_path / "ours").mkdir()
    write_tokenizer(tmp_path / "m.gguf", metadata(pieces, **fields), ours)
    found = TextTokenizer(ours)
    assert found.encode("the fox") == [1, *oracle.encode("the fox")]
    for text in random_texts(5):
        expected = oracle.encode(text)
        assert found.encode_continuation(text) == expected
        assert found.decode(expected) == oracle.decode(expected)
    special = found.special_token_ids
    assert special == {0, 1, 2} and pieces.texts.index("<u>") not in special
    if has_prefix:  # as llama.cpp, again behind each token that is matched whole
        assert found.encode_continuation("</s>the") == [2, *oracle.encode("the")]


def test_control_tokens_of_phi3_take_the_white_space_behind(tmp_path: Path) -> None:
    kind = {"model_type": "bpe", "remove_extra_whitespaces": False}
    (tmp_path / "tokenizer.model").write_bytes(trained(**kind, control_symbols=["<|user|>"]))
    pieces = read_pieces(tmp_path / "tokenizer.model")
    named = metadata(pieces)
    for architecture, strips in (("phi3", True), ("llama", False)):
        folder = tmp_path / architecture
        folder.mkdir()
        write_tokenizer(folder / "m.gguf", named | {"general.architecture": architecture}, folder)
        found = TextTokenizer(folder)
        marked, joined = map(found.encode_continuation, ("<|user|>\nthe", "<|user|>the"))
        assert (marked == joined) == strips
        assert found.encode_continuation("<s>\nthe") != found.encode_continuation("<s>the")


def test_pieces_without_their_scores_are_refused(tmp_path: Path) -> None:
    fields = {"tokenizer.ggml.model": "llama", "tokenizer.ggml.tokens": ["a", "b"]}
    for scores in ({}, {"tokenizer.ggml.scores": [0.0]}):
        with pytest.raises(Refused, match="scores are not those of its 2 tokens"):
            write_tokenizer(tmp_path / "m.gguf", fields | scores, tmp_path)


def test_pieces_with_merges_have_the_numbers_that_gemmas_tokenizer_gives(tmp_path: Path) -> None:
    from transformers import GemmaTokenizer

    kind = {"model_type": "bpe", "remove_extra_whitespaces": False, "add_dummy_prefix": False}
    (tmp_path / "tokenizer.model").write_bytes(trained(**kind, user_defined_symbols=["<u>"]))
    pieces = read_pieces(tmp_path / "tokenizer.model")
    model = piece_document(pieces, Around())["model"]
    oracle = GemmaTokenizer(model["vocab"], [tuple(each) for each in model["merges"]])
    fields = {"model": "gemma4", "scores": [-1000.0] * len(pieces.texts)}
    fields |= {"merges": [" ".join(each) for each in model["merges"]], "add_space_prefix": False}
    write_tokenizer(tmp_path / "m.gguf", metadata(pieces, **fields), tmp_path)
    found = TextTokenizer(tmp_path)
    assert found.encode("the fox")[0] == 1
    for text in random_texts(5):
        if "<u" in text:  # the oracle matches nothing whole
            continue
        expected = oracle.encode(text, add_special_tokens=False)
        assert found.encode_continuation(text) == expected
        assert found.decode(expected) == oracle.decode(expected)
