"""A tokenizer that has pictures: marks in a conversation become placeholders among its tokens."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from draftwerk.model.text.decode_stream import DecodeStream
from draftwerk.model.text.templates.chat_template import TemplateMessage
from draftwerk.model.text.tokenizer import TemplateInput, TextTokenizer
from draftwerk.model.text.turns import Turn
from draftwerk.pictures.picture_store import KeptPicture, PictureStore
from draftwerk.pictures.placeholders import (
    MARK,
    mark_of,
    place_of,
    placeholders,
    without_placeholders,
)
from draftwerk.speculative.parameters.bounds import PLACEHOLDER_MIN

GONE = (
    "a picture of an earlier turn is kept no more: send the whole conversation with its pictures, "
    "without `previous_response_id` or `conversation`"
)
NOT_SHOWN = "the prompt does not show each picture in its place"


class PicturedText(TextTokenizer):
    """A tokenizer and its chat template, which shows pictures."""

    def __init__(
        self,
        directory: Path,
        *words: str,
        store: PictureStore,
        shown_as: tuple[int, str],
        name: str,
    ) -> None:
        """`words` are those of a TextTokenizer, `shown_as` the token in whose place rows stand, and
        the name of the one that its template shows a picture as, if that is another."""
        super().__init__(directory, *words, name=name)
        self._store = store
        self._picture_id, shown = shown_as
        self._shown = shown or self.tokenizer.id_to_token(self._picture_id) or ""

    def message_of(self, turn: Turn) -> dict[str, Any]:
        """Return a turn as templates take it, with a part for each picture."""
        return _in_parts(super().message_of(turn))

    def worded(
        self, messages: Sequence[TemplateMessage], tools: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return a conversation whose calls are in words, its pictures in their places."""
        return [*map(_in_parts, super().worded([*map(_as_texts, messages)], tools))]

    def _rendered(self, asked: TemplateInput, messages: Sequence[TemplateMessage]) -> str:
        """Return a conversation's text, with its pictures' layouts. Raises ValueError."""
        text = super()._rendered(asked, messages)
        digests = [*_digests(asked.messages)]
        if not digests:
            return text
        first, *rest = text.split(self._shown)
        if len(rest) != len(digests):
            raise ValueError(NOT_SHOWN)
        return first + "".join(map(str.__add__, map(self._layout, digests), rest))

    def encode_chat(
        self,
        messages: Sequence[Turn],
        tools: Sequence[str] = (),
        variables: Sequence[tuple[str, Any]] = (),
    ) -> list[int]:
        """Return a conversation's tokens; raises ValueError for a picture that is gone, or that the
        template does not show."""
        digests = [digest for turn in messages for digest in MARK.findall(turn.content)]
        return self._filled(super().encode_chat(messages, tools, variables), digests)

    def encode_segments(
        self,
        messages: Sequence[Turn],
        tools: Sequence[str] = (),
        variables: Sequence[tuple[str, Any]] = (),
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the tokens and segments of a conversation without pictures."""
        if any(MARK.search(turn.content) for turn in messages):
            raise ValueError("segments cannot be reused beside pictures")
        return super().encode_segments(messages, tools, variables)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a prompt, pictures among them."""
        whole = MARK.sub(lambda mark: self._layout(mark[1]), text)
        return self._filled(super().encode(whole), MARK.findall(text))

    def check_tokens(self, tokens: Sequence[int]) -> None:
        """Raise ValueError for a placeholder of no picture that is here."""
        keys = {place_of(token).key for token in tokens if token >= PLACEHOLDER_MIN}
        if any(self._store.named(key) is None for key in keys):
            raise ValueError("a picture of the prompt is kept no more: send it again")

    def decode(self, tokens: Sequence[int], skip_special: bool = True) -> str:
        """Return the text of tokens."""
        return super().decode(without_placeholders(tokens, self._picture_id), skip_special)

    def stream(
        self,
        prompt: Sequence[int] = (),
        shown: frozenset[int] = frozenset(),
        skip_special: bool = True,
    ) -> DecodeStream:
        """Return an incremental decoder of what continues `prompt`."""
        known = without_placeholders(prompt, self._picture_id)
        return super().stream(known, shown, skip_special)

    def token_bytes(self, token: int) -> bytes:
        """Return a token's own bytes."""
        return super().token_bytes(self._picture_id if token >= PLACEHOLDER_MIN else token)

    def _found(self, digest: str) -> KeptPicture:
        if (found := self._store.find(digest) or self._store.again(digest)) is None:
            raise ValueError(GONE)
        return found

    def _layout(self, digest: str) -> str:
        return self._found(digest).text

    def _filled(self, tokens: list[int], digests: Sequence[str]) -> list[int]:
        """Return tokens with placeholders for the rows of their pictures. Raises ValueError."""
        if not digests:
            return tokens
        kept = map(self._found, digests)
        rows = chain.from_iterable(placeholders(each.digest, each.rows) for each in kept)
        found = [next(rows, -1) if token == self._picture_id else token for token in tokens]
        if -1 in found or next(rows, None) is not None:
            raise ValueError(NOT_SHOWN)
        return found


def _in_parts(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with a part for each mark in its texts."""
    content = message["content"]
    texts = [content] if isinstance(content, str) else [part["text"] for part in content or ()]
    if not any(map(MARK.search, texts)):
        return message
    return {**message, "content": [part for text in texts for part in _parts(text)]}


def _as_texts(message: TemplateMessage) -> dict[str, Any]:
    """Return a message with a mark for each part that is a picture."""
    content = message["content"]
    if not isinstance(content, list):
        return {**message}
    texts = (mark_of(part["digest"]) if "digest" in part else part["text"] for part in content)
    return {**message, "content": "".join(texts)}


def _digests(messages: Sequence[TemplateMessage]) -> Iterator[str]:
    """Yield the digests of pictures in messages as templates take them."""
    for message in messages:
        parts = message["content"]
        for part in parts if isinstance(parts, list) else ():
            if "digest" in part:
                yield part["digest"]


def _parts(text: str) -> Iterator[dict[str, str]]:
    """Yield the parts of a content: pictures, and what is between them."""
    for at, each in enumerate(MARK.split(text)):
        if at % 2:
            yield {"type": "image", "digest": each}
        elif each:
            yield {"type": "text", "text": each}
