"""Tokens to text: no half characters on the way, nothing lost at the end."""

from hypothesis import given
from hypothesis import strategies as st

from draftwerk.model.text.decode_stream import (
    REPLACEMENT,
    ByteStream,
    WindowStream,
    byte_alphabet,
)

BYTES = {number: bytes([number]) for number in range(256)}


def windowed(tokens: list[int]) -> str:
    return bytes(tokens).decode("utf-8", "replace")


@given(st.text(max_size=12))
def test_whole_texts_come_back_in_whole_characters(text: str) -> None:
    for stream in (ByteStream(BYTES, frozenset()), WindowStream(windowed, frozenset(), [])):
        pieces = [stream.push(token) for token in text.encode()]
        assert REPLACEMENT in text or not any(REPLACEMENT in piece for piece in pieces)
        assert "".join(pieces) + stream.flush() == text


def test_a_character_that_is_cut_short_is_replaced_at_the_end() -> None:
    for stream in (ByteStream(BYTES, frozenset()), WindowStream(windowed, frozenset(), [])):
        assert [stream.push(token) for token in "\u00e9".encode()[:1]] == [""]
        assert stream.flush() == REPLACEMENT


def test_hidden_tokens_have_no_text_and_a_first_space_may_be_the_tokenizers() -> None:
    stream = ByteStream({1: b" a", 2: b" b"}, frozenset({9}), strips=True)
    assert stream.hides(9) and not stream.hides(1)
    assert [stream.push(token) for token in (9, 1, 2)] == ["", "a", " b"]


def test_every_byte_has_a_printable_stand_in() -> None:
    alphabet = byte_alphabet()
    assert sorted(alphabet.values()) == [*range(256)]
    assert all(name.isprintable() for name in alphabet) and alphabet["A"] == ord("A")
