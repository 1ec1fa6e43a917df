"""Kept pieces: the tokens of a text are the tokenizer's, whatever was encoded before."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers

from draftwerk.model.text import kept_pieces
from draftwerk.model.text.kept_pieces import KeptPieces, cut_names
from draftwerk.speculative.requests.client_prompts import ChatMessage
from tests.support.small_tokenizers import KINDS, saved

TOKENS = (
    AddedToken("<|a|>", special=True, normalized=False),
    AddedToken("<|b|>", special=True, normalized=False, rstrip=True),
    AddedToken("<|left|>", special=True, normalized=False, lstrip=True),
    AddedToken("<|word|>", special=True, normalized=False, single_word=True),
    AddedToken("<|word|>s", special=False, normalized=False),
    AddedToken("(<|a|>)", special=False, normalized=False),
    AddedToken("x<|", special=False, normalized=False),
    AddedToken("<think>", special=False, normalized=True),
    AddedToken("QUICK", special=True, normalized=True),
)
PARTS = (*(each.content for each in TOKENS), "<s>", "the quick", " ", "x", "<|", "a|>", "ﬁ", "🦊")


def with_tokens(tokenizer: Tokenizer, *tokens: AddedToken) -> Tokenizer:
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()])
    tokenizer.add_tokens(list(tokens))
    return tokenizer


def encoded(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("kind", [*KINDS.values(), "first word"], ids=[*KINDS, "first word"])
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chosen=st.sets(st.sampled_from(TOKENS)), texts=st.lists(st.lists(st.sampled_from(PARTS))))
@example({TOKENS[3]}, [["the quick", "<|word|>", " "]])
@example({TOKENS[-1]}, [["the quick", " ", "QUICK"]])
@example({TOKENS[0], TOKENS[5]}, [["the quick", "(<|a|>)"]])
def test_tokens_are_those_of_the_whole_text(
    monkeypatch: pytest.MonkeyPatch, kind: Any, chosen: set[AddedToken], texts: list[list[str]]
) -> None:
    monkeypatch.setattr(kept_pieces, "PIECE_MIN", 3)
    monkeypatch.setattr(kept_pieces, "CHARACTERS_MAX", 60)
    tokenizer = with_tokens(KINDS["byte fallback"]() if kind == "first word" else kind(), *chosen)
    if kind == "first word":
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    kept = KeptPieces(tokenizer, lambda text: encoded(tokenizer, text))
    for parts in [*texts, *texts]:
        text = "".join(parts)
        assert kept.tokens(text) == encoded(tokenizer, text)


def test_texts_are_cut_before_tokens_that_nothing_around_them_changes() -> None:
    tokenizer = with_tokens(KINDS["byte level"](), *TOKENS[:5])
    assert set(cut_names(tokenizer)) == {"<s>", "</s>", "<|a|>", "<|b|>"}
    # `x<|` may take the first of another's letters.
    tokenizer.add_tokens(["x<|"])
    assert set(cut_names(tokenizer)) == {"<s>", "</s>"}


def test_only_what_is_new_of_a_conversation_is_encoded(tmp_path: Path) -> None:
    template = "{% for each in messages %}<s>{{ each.content }}</s>{% endfor %}<s>"
    text = saved(KINDS["byte level"](), tmp_path, template)
    sizes: list[int] = []

    def counted(piece: str) -> list[int]:
        sizes.append(len(piece))
        return text.encode_continuation(piece)

    text.kept = KeptPieces(text.tokenizer, counted)
    turns = [
        ChatMessage("user", "the quick brown fox " * 50),
        ChatMessage("assistant", "jumps " * 100),
    ]
    text.encode_chat(turns)
    read, whole = sum(sizes), sizes.copy()
    text.encode_chat([*turns, ChatMessage("user", "again")])
    assert read > 1500
    assert sum(sizes) - read < 20
    assert len(whole) == 3


def test_the_least_lately_used_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_pieces, "CHARACTERS_MAX", 10)
    asked: list[str] = []
    kept = KeptPieces(KINDS["byte level"](), lambda text: asked.append(text) or [])
    for text in ("aaaa", "bbbb", "aaaa", "cccc", "aaaa", "bbbb"):
        kept.tokens(text)
    assert asked == ["aaaa", "bbbb", "cccc", "bbbb"]
    assert kept.tokens("d" * 11) == []
