"""The actors' needs of a tokenizer."""

from collections.abc import Sequence
from typing import Protocol

from draftwerk.speculative.replies.half_written import ReplyPiece
from draftwerk.speculative.requests.client_prompts import ChatMessage, Variable
from draftwerk.speculative.sampling import Grammar


class TextStream(Protocol):
    """Turns one text's tokens into characters as they come; never emits half a code point."""

    def push(self, token: int) -> str:
        """Return the text that became certain with this token, maybe ""."""
        ...

    def flush(self) -> str:
        """Return what is left at the end of the text: unfinished bytes as U+FFFD."""
        ...

    def hides(self, token: int) -> bool:
        """Whether a token is no part of the text."""
        ...


class TextTools(Protocol):
    """A tokenizer and its chat template."""

    @property
    def vocab_size(self) -> int: ...

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a plain prompt, with the beginning token if the model has one."""
        ...

    def encode_chat(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[str] = (),
        variables: Sequence[tuple[str, Variable]] = (),
    ) -> list[int]:
        """Return the tokens of a rendered conversation, up to the assistant's turn. Earlier answers
        whose tokens are known keep them; `tools` are JSON. Raises ValueError, with a message for
        the client, if the template refuses it.
        """
        ...

    def encode_segments(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[str] = (),
        variables: Sequence[tuple[str, Variable]] = (),
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the tokens of a rendered conversation, those of each segment as if it stood alone,
        and (start, stop) of each. Raises ValueError, with a message for the client, if the template
        refuses it or changes a segment.
        """
        ...

    def encode_passages(
        self, documents: Sequence[str], text: str
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the same of documents, each followed by an empty line, and of a text."""
        ...

    def encode_pair(self, query: str, document: str, instruction: str = "") -> list[int]:
        """Return the tokens of the question whether a document answers a query. Raises ValueError,
        with a message for the client, where the model is no reranker."""
        ...

    def encode_continuation(self, text: str) -> list[int]:
        """Return the tokens of a text that a template has completed: no beginning token."""
        ...

    def encode_following(self, text: str) -> list[int]:
        """Return the tokens of text behind a prompt: no space is put before it either."""
        ...

    def encode_pieces(self, pieces: Sequence[ReplyPiece]) -> list[int]:
        """Return the tokens of a half-written reply, which follows a prompt."""
        ...

    def check_tokens(self, tokens: Sequence[int]) -> None:
        """Raise ValueError for a number from PLACEHOLDER_MIN on that stands for nothing here."""
        ...

    def check_grammar(self, grammar: Grammar, written: Sequence[int] = ()) -> None:
        """Raise ValueError, in words for the client, for a grammar that cannot be followed, or not
        behind the tokens `written`.

        Raises OSError where that cannot be told now.
        """
        ...

    def decode(self, tokens: Sequence[int], skip_special: bool = True) -> str:
        """Return the text of a prompt, special tokens left out."""
        ...

    def token_bytes(self, token: int) -> bytes:
        """Return the bytes that the token stands for; a special token's name."""
        ...

    def stream(self, prompt: Sequence[int], shown: frozenset[int] = frozenset()) -> TextStream:
        """Return the text state of a choice that continues `prompt`; of special tokens, those in
        `shown` are text."""
        ...
