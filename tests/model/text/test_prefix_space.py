"""The space before a text: taken away where a tokenizer puts one, and put where it can."""

from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel

from draftwerk.model.text.prefix_space import with_prefix, without_prefix


def metaspace(scheme: str) -> Tokenizer:
    tokenizer = Tokenizer(WordLevel({"a": 0, "\u2581a": 1}, unk_token="a"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)  # type: ignore[assignment]
    return tokenizer


def test_a_space_is_taken_away_only_where_one_is_put() -> None:
    bare = without_prefix(metaspace("first"))
    assert bare is not None
    assert metaspace("first").encode("a").ids == [1] and bare.encode("a").ids == [0]
    assert without_prefix(metaspace("never")) is None


def test_a_space_is_put_only_where_none_is() -> None:
    spaced = with_prefix(metaspace("never"))
    assert spaced is not None and spaced.encode("a").ids == [1]
    assert with_prefix(metaspace("first")) is None
    assert with_prefix(Tokenizer(WordLevel({"a": 0}, unk_token="a"))) is None
