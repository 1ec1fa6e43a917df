"""A model's tokenizer as it is served, and as grammars have it."""

import json
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer

from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.text.grammar import Grammars, grammars_of
from draftwerk.model.text.vocabulary import FILE, read_tokenizer, token_count
from draftwerk.model.text.vocabulary_text import VocabularyText
from draftwerk.speculative.sampling import Grammar

ENDS = (2,)
NAME = "a<|im_end|>b <tool_call>é<|endoftext|>"
FORCED = {
    "lark": (f'start: "{NAME}"', NAME),
    "regex": (NAME.replace("|", r"\|"), NAME),
    "json_schema": (f'{{"const": "{NAME}"}}', f'"{NAME}"'),
}


@pytest.mark.parametrize("kind", FORCED)
def test_names_of_added_tokens_in_a_grammar_are_text(kind: str) -> None:
    tokenizer = read_tokenizer(locate(None).directory)
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False)])
    vocabulary, added = VocabularyText(tokenizer), set(tokenizer.get_added_tokens_decoder())
    written, text = FORCED[kind]
    tokens = Grammars(tokenizer).matcher(Grammar(kind, written), ENDS).jump_forward()
    assert not added & set(tokens)
    assert vocabulary.decode(tokens) == text


def test_the_names_in_a_grammar_outside_strings_are_the_tokens() -> None:
    matcher = Grammars(read_tokenizer(locate(None).directory)).matcher(
        Grammar("lark", "start: <|im_start|> <[0]>"), ENDS
    )
    assert matcher.jump_forward()[:2] == (1, 0)


def changed(directory: Path, **fields: object) -> Path:
    """Write the built-in model's tokenizer with some other fields."""
    file = json.loads((locate(None).directory / FILE).read_text(encoding="utf-8"))
    (directory / FILE).write_text(json.dumps({**file, **fields}), encoding="utf-8")
    return directory


def test_one_that_cuts_texts_no_longer_does(tmp_path: Path) -> None:
    cut = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    found = read_tokenizer(changed(tmp_path, truncation=cut))
    assert found.truncation is None
    assert token_count(found.get_vocab(with_added_tokens=True)) == 49_152


@pytest.mark.parametrize("content", [b"{", b'{"model": {}}', b'{"model": 5}'])
def test_a_broken_one_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(Refused, match=FILE):
        grammars_of(tmp_path, 100, (2,))


def listing(directory: Path, number: int) -> Path:
    """Write a tokenizer whose config lists one more token."""
    token = {"content": "<listed>", "special": True, "normalized": False}
    config = {"added_tokens_decoder": {str(number): token}}
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return changed(directory)


def test_tokens_that_the_config_alone_lists_are_one_token_each(tmp_path: Path) -> None:
    found = read_tokenizer(listing(tmp_path, 49_152))
    assert found.encode("a<listed>b", add_special_tokens=False).ids[1] == 49_152


def test_a_listed_token_with_another_number_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="added_tokens_decoder lists '<listed>' as 50000"):
        read_tokenizer(listing(tmp_path, 50_000))


def test_an_old_list_of_names_leaves_what_the_tokenizer_says_of_its_tokens(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(locate(None).directory / FILE))
    tokenizer.add_tokens([AddedToken("<turn>", rstrip=True, normalized=False, special=True)])
    tokenizer.save(str(tmp_path / FILE))
    numbers = {"<turn>": 49_152, "<more>": 49_153}
    (tmp_path / "added_tokens.json").write_text(json.dumps(numbers), encoding="utf-8")
    found = read_tokenizer(tmp_path)
    assert found.encode("<turn>\n a<more>b", add_special_tokens=False).ids == [
        *(49_152, *found.encode("a").ids, 49_153, *found.encode("b").ids)
    ]


@pytest.mark.parametrize("version", ["4.57.1", "5.0.0"])
def test_a_pattern_that_transformers_would_put_in_is_refused(version: str, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(str(locate(None).directory / FILE))
    tokenizer.add_tokens([f"<{number}>" for number in range(60_000)])
    tokenizer.save(str(tmp_path / FILE))
    (tmp_path / "tokenizer_config.json").write_text('{"fix_mistral_regex": true}')
    model = {"model_type": "mistral", "transformers_version": version}
    (tmp_path / "config.json").write_text(json.dumps(model))
    if version.startswith("5"):
        assert read_tokenizer(tmp_path).get_vocab_size() > 100_000
        return
    with pytest.raises(Refused, match="fix_mistral_regex is not supported"):
        read_tokenizer(tmp_path)
