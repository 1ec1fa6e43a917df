"""A tokenizer whose tokens are the bytes of UTF-8: most code points take several tokens."""

from codecs import getincrementaldecoder
from collections.abc import Sequence

from draftwerk.speculative.parameters.bounds import PLACEHOLDER_MIN
from draftwerk.speculative.replies.half_written import ReplyPiece
from draftwerk.speculative.requests.client_prompts import ChatMessage, Variable
from draftwerk.speculative.sampling import Grammar

END = 256
"""A special token: it has a name, but no text."""


class Letters:
    vocab_size = 257
    own: tuple[int, ...] = ()
    """What stands before every text."""

    def encode(self, text: str) -> list[int]:
        return [*self.own, *text.encode()]

    def encode_continuation(self, text: str) -> list[int]:
        return list(text.encode())

    encode_following = encode_continuation

    def encode_chat(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[str] = (),
        variables: Sequence[tuple[str, Variable]] = (),
    ) -> list[int]:
        return [byte for message in messages for byte in self.encode(message.content)]

    def encode_pieces(self, pieces: Sequence[ReplyPiece]) -> list[int]:
        return self.encode("".join(each.text for each in pieces))

    def check_tokens(self, tokens: Sequence[int]) -> None:
        if max(tokens, default=0) >= PLACEHOLDER_MIN:
            raise ValueError(f"a token id is outside the vocabulary of {self.vocab_size}")

    def check_grammar(self, grammar: Grammar, written: Sequence[int] = ()) -> None:
        if grammar.text == "(":
            raise ValueError("the grammar cannot be followed: it is open")

    def decode(self, tokens: Sequence[int], skip_special: bool = True) -> str:
        if not skip_special:
            return b"".join(map(self.token_bytes, tokens)).decode("utf-8", "replace")
        return bytes(token for token in tokens if token != END).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        return b"<end>" if token == END else bytes([token])

    def stream(self, prompt: Sequence[int], shown: frozenset[int] = frozenset()) -> "LetterStream":
        return LetterStream()


class LetterStream:
    def __init__(self) -> None:
        self._decoder = getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        return "" if token == END else self._decoder.decode(bytes([token]))

    def hides(self, token: int) -> bool:
        return token == END

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)
