"""Tokens and text: streams lose nothing, and never show half a character."""

from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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


def test_characters_are_decoded_as_the_library_does(text: TextTokenizer):
    for sample in (*CORPUS, " two  spaces ", "€", "a\nb", "🦊</s>日本", ""):
        tokens = text.encode_continuation(sample)
        for start in range(len(tokens)):
            with suppress(UnicodeDecodeError):
                b"".join(map(text.token_bytes, tokens[start:])).decode()
                for skip in (True, False):
                    library = text.tokenizer.decode(tokens[start:], skip_special_tokens=skip)
                    assert text.decode(tokens[start:], skip) == library


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sample=st.text(st.sampled_from("aé€🦊日 \n"), max_size=6), noise=st.binary(max_size=2))
def test_bytes_are_sent_as_soon_as_they_are_characters(
    text: TextTokenizer, sample: str, noise: bytes
):
    """And those that were sent stay, whatever bytes come behind them."""
    data = sample.encode() + noise
    of_bytes = {text.token_bytes(token): token for token in range(text.vocab_size)}
    tokens = [of_bytes[bytes([each])] for each in data]
    stream, sent = text.stream(text.encode_continuation("a")), ""
    for cut, token in enumerate(tokens, 1):
        sent += stream.push(token)
        if cut <= len(sample.encode()):
            assert sent == data[:cut].decode("utf-8", "ignore")
    assert sent + stream.flush() == data.decode("utf-8", "replace")


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
