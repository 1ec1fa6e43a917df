"""Pieces of a text, encoded one by one, are its tokens: none of them gets a space of its own."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from draftwerk.model.text.following_text import FollowingText
from draftwerk.model.text.grammar import PlainTokens
from draftwerk.model.text.vocabulary_text import VocabularyText
from draftwerk.speculative.requests.client_prompts import ChatMessage
from tests.support.small_tokenizers import byte_level, saved, sentencepiece_like

SCRAPS = (
    "the fox",
    " ",
    "  ",
    "\n",
    "</s>",
    "<s>",
    "Köln",
    "🦊",
    "<extra>",
    "<",
    "a",
    "日本",
    " again",
)
CHAT = (
    "{% for m in messages %}{{ '<s>[' + m.role + '] ' + m.content + ' ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<s>[assistant] ' }}{% endif %}"
)


def prepending() -> Tokenizer:
    """A vocabulary of pieces with a space before a text, as Llama 2's."""
    found = sentencepiece_like()
    found.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    found.pre_tokenizer = None
    return found


def first_only() -> Tokenizer:
    found = sentencepiece_like()
    found.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    return found


def spaced_bytes() -> Tokenizer:
    found = byte_level()
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    return found


def likely() -> Tokenizer:
    """A unigram vocabulary."""
    pieces = [("<unk>", 0.0), *((f"<0x{byte:02X}>", -9.0) for byte in range(256))]
    pieces += [
        (piece, -2.0 - n) for n, piece in enumerate(("▁the", "▁", "the", "fox", "▁fox", "a"))
    ]
    found = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=True))
    found.normalizer = normalizers.Replace(" ", "▁")
    found.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always", split=False)
    found.decoder = sentencepiece_like().decoder
    found.add_special_tokens([AddedToken("<s>", special=True), AddedToken("</s>", special=True)])
    return found


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "byte level": byte_level,
    "byte level, spaced": spaced_bytes,
    "pieces": sentencepiece_like,
    "pieces, prepended": prepending,
    "pieces, the first alone": first_only,
    "unigram": likely,
}
kinds = pytest.mark.parametrize("kind", KINDS)


def texts(seed: str, count: int = 60) -> list[list[str]]:
    rng = Random(seed)
    return [[rng.choice(SCRAPS) for _ in range(rng.randint(1, 7))] for _ in range(count)]


@kinds
def test_pieces_are_the_text_again(kind: str) -> None:
    tokenizer = KINDS[kind]()
    tokenizer.add_tokens([AddedToken("<extra>", special=False, normalized=False)])
    text, following = VocabularyText(tokenizer), FollowingText(tokenizer)
    for pieces in texts(kind):
        whole = "".join(pieces)
        tokens = text.encode_continuation(pieces[0])
        for piece in pieces[1:]:
            tokens += following.tokens(piece)
        # A space at the very beginning is the library's to keep or to leave out.
        found = text.decode(tokens, skip_special=False)
        assert found.lstrip(" ") == whole.lstrip(" "), pieces


@kinds
def test_names_of_tokens_in_a_users_text_cost_no_space(kind: str, tmp_path: Any) -> None:
    text = saved(KINDS[kind](), tmp_path, CHAT)
    for written in ("the </s> fox", "</s>", "a<s>b", "<s> </s>"):
        tokens = text.encode_chat([ChatMessage("user", written)])
        shown = text.decode(tokens, skip_special=False).replace("<s> [", "<s>[")
        assert shown == f"<s>[user] {written} <s>[assistant] "


@kinds
def test_a_known_answer_and_its_text_are_one_prompt(kind: str, tmp_path: Any) -> None:
    text = saved(KINDS[kind](), tmp_path, CHAT)
    asked = ChatMessage("user", "the fox")
    prompt = text.encode_chat([asked])
    whole = text.encode_chat([asked, ChatMessage("assistant", "again"), asked])
    answer = tuple(text._following.tokens("again"))  # pyright: ignore[reportPrivateUsage]
    known = text.encode_chat([asked, ChatMessage("assistant", "again", tokens=answer), asked])
    assert known[: len(prompt) + len(answer)] == [*prompt, *answer]
    assert text.decode(known, skip_special=False) == text.decode(whole, skip_special=False)


@kinds
def test_what_follows_a_prompt_begins_no_text(kind: str, tmp_path: Any) -> None:
    text = saved(KINDS[kind](), tmp_path, CHAT)
    for before, behind in (("the fox", " again"), ("the f", "ox"), ("a ", "日本")):
        tokens = [*text.encode_continuation(before), *text.encode_following(behind)]
        assert text.decode(tokens, skip_special=False).lstrip(" ") == before + behind


@kinds
def test_what_a_grammar_forces_begins_no_text(kind: str) -> None:
    tokenizer = KINDS[kind]()
    words = PlainTokens(tokenizer)
    for forced in ("the fox", " again", "ox"):
        assert b"".join(words.tokens[token] for token in words(forced)) == forced.encode()


def test_a_token_that_takes_in_the_space_before_it_is_shown_with_it() -> None:
    tokenizer = prepending()
    tokenizer.add_tokens([AddedToken("<extra>", special=False, normalized=True)])
    text = VocabularyText(tokenizer)
    for written in ("a <extra> fox", "<extra>", "<extra> <extra>", "a<extra>"):
        tokens = text.encode_continuation(written)
        assert text.decode(tokens) == written
    assert tokenizer.token_to_id("<extra>") in text.encode_continuation("a <extra> fox")
