"""A half-written answer has the tokens that are known of it, or those of its text."""

from types import SimpleNamespace
from typing import Any

import pytest

from draftwerk.actors.texts.half_turns import HalfTurnError, encoded_half
from draftwerk.speculative.requests.client_prompts import ChatMessage, HalfTurn

TEXT: Any = SimpleNamespace(encode_pieces=lambda pieces: [len(piece.text) for piece in pieces])


def test_known_tokens_go_first() -> None:
    half = HalfTurn(ChatMessage("assistant", "abc", tokens=(7, 8)))
    assert encoded_half(TEXT, half, None) == (7, 8)
    assert encoded_half(TEXT, HalfTurn(ChatMessage("assistant", "abc")), None) == (3,)


def test_what_cannot_be_encoded_is_refused_in_words() -> None:
    def encode_pieces(pieces: Any) -> Any:
        raise ValueError("no such mark")

    text: Any = SimpleNamespace(encode_pieces=encode_pieces)
    with pytest.raises(HalfTurnError, match="no such mark"):
        encoded_half(text, HalfTurn(ChatMessage("assistant", "abc")), None)
