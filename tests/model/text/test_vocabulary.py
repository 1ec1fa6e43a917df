"""A tokenizer that is described, not built, is the one that would be built."""

import json
from pathlib import Path

import pytest

from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.text.grammar import Grammars, grammars_of
from draftwerk.model.text.vocabulary import FILE, described, read_described, read_tokenizer
from draftwerk.speculative.sampling.params import Grammar

OBJECT = '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}'
GRAMMARS = (Grammar("json_schema", OBJECT), Grammar("regex", "[a-z ]+é?"))


def test_grammars_over_either_allow_the_same_tokens() -> None:
    directory = locate(None).directory
    file, built = read_described(directory), described(read_tokenizer(directory))
    assert file.token_count == built.token_count == 49_152
    for grammar in GRAMMARS:
        one, other = (Grammars(each).matcher(grammar, (2,)) for each in (file, built))
        assert (one.allowed() == other.allowed()).all()
        assert one.jump_forward() == other.jump_forward()


def changed(directory: Path, **fields: object) -> Path:
    """Write the built-in model's tokenizer with some other fields."""
    file = json.loads((locate(None).directory / FILE).read_text(encoding="utf-8"))
    (directory / FILE).write_text(json.dumps({**file, **fields}), encoding="utf-8")
    return directory


def test_one_that_cuts_texts_is_built_and_no_longer_does(tmp_path: Path) -> None:
    cut = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    found = read_described(changed(tmp_path, truncation=cut))
    assert json.loads(found.text)["truncation"] is None
    assert found.token_count == 49_152


@pytest.mark.parametrize(
    ("model", "count"),
    [
        ({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["a", -1.0]]}, 17),
        ({"type": "WordLevel", "unk_token": "a", "vocab": {"a": 40}}, 41),
    ],
)
def test_tokens_are_counted_in_every_form(
    model: dict[str, object], count: int, tmp_path: Path
) -> None:
    added = [{"id": 16, "content": "<s>", "special": True}]
    for each in added:
        each |= dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    found = read_described(changed(tmp_path, model=model, added_tokens=added))
    assert found.token_count == count


@pytest.mark.parametrize("content", [b"{", b'{"model": {}}', b'{"model": 5}'])
def test_a_broken_one_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(Refused, match=FILE):
        grammars_of(tmp_path, 100, (2,))
