"""Tokens and text of one vocabulary."""

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Tokenizer

from draftwerk.model.text.decode_stream import ByteStream, DecodeStream, WindowStream, byte_alphabet
from draftwerk.model.text.vocabulary import read_tokenizer, token_count

CONTEXT_COUNT = 8
"""Prompt tokens given to a decoder as the text before."""


class VocabularyText:
    """A vocabulary: text to tokens and back; safe to share between threads."""

    def __init__(self, directory: Path) -> None:
        self.tokenizer = read_tokenizer(directory)
        self.vocab_size = token_count(self.tokenizer)
        """Token ids with text are below it; the model's vocabulary may be padded beyond."""
        added = self.tokenizer.get_added_tokens_decoder()
        self.special_token_ids = frozenset(id for id, token in added.items() if token.special)
        self._bytes = _token_bytes(self.tokenizer)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a prompt, with the model's own tokens around a text (such as
        BOS)."""
        return self._encode(text, special=True)

    def encode_continuation(self, text: str) -> list[int]:
        """Return the tokens of text that follows a prompt, or that a template has completed."""
        return self._encode(text, special=False)

    def _encode(self, text: str, special: bool) -> list[int]:
        # A batch, even of one, is encoded without the interpreter's lock: other threads go on.
        return self.tokenizer.encode_batch_fast([text], add_special_tokens=special)[0].ids

    def decode(self, tokens: Sequence[int], skip_special: bool = True) -> str:
        """Return the text of tokens."""
        return self.tokenizer.decode(list(tokens), skip_special_tokens=skip_special)

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
        if self._bytes is not None:
            return ByteStream(self._bytes, hidden)
        context = [token for token in prompt[-CONTEXT_COUNT:] if token not in hidden]
        return WindowStream(lambda tokens: self.decode(tokens, skip_special=False), hidden, context)

    def token_bytes(self, token: int) -> bytes:
        """Return a token's own bytes, special tokens by their name; unknown ids have none."""
        if self._bytes is not None:
            return self._bytes.get(token, b"")
        piece = self.tokenizer.id_to_token(token)
        return b"" if piece is None else _piece_bytes(piece)


def _token_bytes(tokenizer: Tokenizer) -> dict[int, bytes] | None:
    """Return every token's bytes where the decoder is plain byte-level, else None."""
    if "ByteLevel" not in type(tokenizer.decoder).__name__:
        return None
    alphabet = byte_alphabet()
    added = tokenizer.get_added_tokens_decoder()
    table = {id: token.content.encode() for id, token in added.items()}
    for piece, token in tokenizer.get_vocab(with_added_tokens=False).items():
        if token not in table:
            table[token] = _alphabet_bytes(piece, alphabet)
    return table


def _alphabet_bytes(piece: str, alphabet: dict[str, int]) -> bytes:
    try:
        return bytes(alphabet[character] for character in piece)
    except KeyError:
        return piece.encode()


def _piece_bytes(piece: str) -> bytes:
    """Return the bytes of a SentencePiece piece: `<0x0A>` is a byte, ▁ a space."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes([int(piece[3:5], 16)])
    return piece.replace("▁", " ").encode()
