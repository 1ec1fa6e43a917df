"""Tokens and text of one vocabulary."""

import json
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tokenizers import Tokenizer

from draftwerk.model.text.decode_stream import ByteStream, DecodeStream, WindowStream, byte_alphabet
from draftwerk.model.text.vocabulary import token_count

PIECES: list[dict[str, Any]] = [
    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
    {"type": "ByteFallback"},
    {"type": "Fuse"},
]
"""The decoder of pieces and bytes, as SentencePiece has them."""
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
"""Behind it, where a space is put before a text."""
NO_BYTE = 0x100
"""Where a character would stand for itself, and stands for no byte: it is beyond all of them."""
CONTEXT_COUNT = 8
"""Prompt tokens given to a decoder as the text before."""


class VocabularyText:
    """A vocabulary: text to tokens and back; safe to share between threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self.vocab_size = token_count(vocabulary)
        """Token ids with text are below it; the model's vocabulary may be padded beyond."""
        added = self.tokenizer.get_added_tokens_decoder()
        self.special_token_ids = frozenset(id for id, token in added.items() if token.special)
        steps = _decoder_steps(self.tokenizer)
        self._strips = steps == [*PIECES, STRIP]
        self._bytes = (
            {token: _piece_bytes(piece) for piece, token in _shown(tokenizer, vocabulary)}
            if self._strips or steps == PIECES
            else _token_bytes(self.tokenizer, vocabulary)
        )

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a prompt, with the model's own tokens around a text (such as
        BOS)."""
        return encoded(self.tokenizer, text, special=True)

    def encode_continuation(self, text: str) -> list[int]:
        """Return the tokens of a text that a template has completed: none are put around it."""
        return encoded(self.tokenizer, text)

    def decode(self, tokens: Sequence[int], skip_special: bool = True) -> str:
        """Return the text of tokens.

        Of bytes that are no characters each U+FFFD stands for as many as a stream finds; the
        library has one for each byte of such a run, also of the characters in it.
        """
        if self._bytes is None:
            with panics_told():
                return self.tokenizer.decode(list(tokens), skip_special_tokens=skip_special)
        stream = self.stream(skip_special=skip_special)
        return "".join(map(stream.push, tokens)) + stream.flush()

    def stream(
        self,
        prompt: Sequence[int] = (),
        shown: frozenset[int] = frozenset(),
        skip_special: bool = True,
    ) -> DecodeStream:
        """Return an incremental decoder of what continues `prompt`.

        Its pieces joined are the text that the tokens add to the prompt's; special tokens are no
        text, unless `shown` has them.
        """
        hidden = self.special_token_ids - shown if skip_special else frozenset[int]()
        context = [token for token in prompt[-CONTEXT_COUNT:] if token not in hidden]
        if self._bytes is not None:
            return ByteStream(self._bytes, hidden, self._strips and not context)
        return WindowStream(lambda tokens: self.decode(tokens, skip_special=False), hidden, context)

    def token_bytes(self, token: int) -> bytes:
        """Return a token's own bytes, special tokens by their name; unknown ids have none."""
        if self._bytes is not None:
            return self._bytes.get(token, b"")
        piece = self.tokenizer.id_to_token(token)
        return b"" if piece is None else _piece_bytes(piece)


class TokenizerFault(ValueError):
    """The model's tokenizer broke on a text."""


@contextmanager
def panics_told() -> Generator[None]:
    """Raise TokenizerFault for a panic of the library, which is no Exception."""
    try:
        yield
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise TokenizerFault(f"the model's tokenizer fails on this text: {error}") from None


def encoded(tokenizer: Tokenizer, text: str, special: bool = False) -> list[int]:
    """Return the tokens of a text. Raises TokenizerFault."""
    # A batch, even of one, is encoded without the interpreter's lock: other threads go on.
    with panics_told():
        return tokenizer.encode_batch_fast([text], add_special_tokens=special)[0].ids


def _shown(tokenizer: Tokenizer, vocabulary: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Yield each token and the text that it is matched in: one may take in the space before it."""
    added = tokenizer.get_added_tokens_decoder()
    normalizer: Any = tokenizer.normalizer
    for piece, token in vocabulary.items():
        if normalizer is not None and token in added and added[token].normalized:
            yield normalizer.normalize_str(piece), token
        else:
            yield piece, token


def _decoder_steps(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Return what a tokenizer makes text of tokens by; empty where it is no sequence."""
    decoder: Any = tokenizer.decoder
    return [] if decoder is None else json.loads(decoder.__getstate__()).get("decoders", [])


def _token_bytes(tokenizer: Tokenizer, vocabulary: dict[str, int]) -> dict[int, bytes] | None:
    """Return every token's bytes where the decoder is plain byte-level, else None."""
    if "ByteLevel" not in type(tokenizer.decoder).__name__:
        return None
    alphabet = {code: NO_BYTE for code in range(256)}
    alphabet |= {ord(character): byte for character, byte in byte_alphabet().items()}
    table = {token: _alphabet_bytes(piece, alphabet) for piece, token in vocabulary.items()}
    added = tokenizer.get_added_tokens_decoder()
    return table | {id: token.content.encode() for id, token in added.items()}


def _alphabet_bytes(piece: str, alphabet: dict[int, int]) -> bytes:
    """Return what characters stand for; of a piece with any other one, its own text's bytes."""
    try:
        return piece.translate(alphabet).encode("latin-1")
    except UnicodeEncodeError:
        return piece.encode()


def _piece_bytes(piece: str) -> bytes:
    """Return the bytes of a SentencePiece piece: `<0x0A>` is a byte, ▁ a space."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes([int(piece[3:5], 16)])
    return piece.replace("▁", " ").encode()
