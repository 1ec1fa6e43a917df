"""Tokens and text: streams lose nothing, and never show half a character."""

from pathlib import Path
from random import Random

import pytest

from draftwerk.model.text.tokenizer import TextTokenizer
from tests.support.small_tokenizers import CORPUS, KINDS, byte_level, saved, sentencepiece_like


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def text(request: pytest.FixtureRequest, tmp_path: Path) -> TextTokenizer:
    return saved(request.param(), tmp_path)


def test_streamed_pieces_join_to_the_text_of_all_tokens(text: TextTokenizer):
    rng = Random(1)
    for _ in range(300):
        prompt = [rng.randrange(text.vocab_size) for _ in range(rng.randint(0, 5))]
        tokens = [rng.randrange(text.vocab_size) for _ in range(rng.randint(0, 12))]
        if rng.random() < 0.5:
            sample = "".join(rng.sample(CORPUS[1], 9))
            tokens = text.encode_continuation(sample)[: rng.randint(1, 30)]
        stream = text.stream()
        joined = "".join(map(stream.push, tokens)) + stream.flush()
        assert joined == text.decode(tokens)
        assert isinstance("".join(map(text.stream(prompt).push, tokens)), str)


def test_a_stream_never_emits_half_a_character(text: TextTokenizer):
    stream = text.stream()
    pieces = [stream.push(token) for token in text.encode_continuation("日本語 🦊")]
    assert "�" not in "".join(pieces)


def test_text_that_continues_a_prompt_keeps_its_leading_space(tmp_path: Path):
    text = saved(sentencepiece_like(), tmp_path)
    prompt, rest = text.encode_continuation("the quick"), text.encode_continuation("brown fox")
    stream = text.stream(prompt)
    assert "".join(map(stream.push, rest)) + stream.flush() == " brown fox"


def test_special_tokens_are_known_and_left_out_of_text(text: TextTokenizer):
    tokens = text.encode_continuation("the fox</s>")
    end = tokens[-1]
    assert end in text.special_token_ids
    assert text.token_bytes(end) == b"</s>"
    assert text.decode(tokens) == "the fox"
    stream = text.stream()
    assert "".join(map(stream.push, tokens)) + stream.flush() == "the fox"


def test_the_bytes_of_tokens_join_to_the_text(tmp_path: Path):
    text = saved(byte_level(), tmp_path)
    sample = CORPUS[1]
    tokens = text.encode(sample)
    assert b"".join(map(text.token_bytes, tokens)).decode() == sample
    assert text.token_bytes(10**6) == b""
