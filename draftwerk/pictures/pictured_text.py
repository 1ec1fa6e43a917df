"""A tokenizer that has pictures: marks in a conversation become placeholders among its tokens."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from draftwerk.model.text.decode_stream import DecodeStream
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.model.text.turns import Turn
from draftwerk.pictures.picture_store import KeptPicture, PictureStore
from draftwerk.pictures.placeholders import MARK, place_of, placeholders
from draftwerk.speculative.sampling.bounds import PLACEHOLDER_MIN


class PicturedText(TextTokenizer):
    """A tokenizer and its chat template, which shows pictures."""

    def __init__(
        self, directory: Path, *words: str, store: PictureStore, picture_id: int, name: str
    ) -> None:
        """`words` are those of a TextTokenizer, `picture_id` is what its template shows a picture
        as."""
        super().__init__(directory, *words, name=name)
        self._store = store
        self._picture_id = picture_id

    def message_of(self, turn: Turn) -> dict[str, Any]:
        """Return a turn as templates take it, with a part for each picture."""
        message = super().message_of(turn)
        if not MARK.search(turn.content):
            return message
        content = message["content"]
        texts = [content] if isinstance(content, str) else [part["text"] for part in content]
        return {**message, "content": [part for text in texts for part in _parts(text)]}

    def encode_chat(
        self,
        messages: Sequence[Turn],
        tools: Sequence[str] = (),
        variables: Sequence[tuple[str, Any]] = (),
    ) -> list[int]:
        """Return a conversation's tokens; raises ValueError for a picture that is gone, or that the
        template does not show."""
        digests = [digest for turn in messages for digest in MARK.findall(turn.content)]
        tokens = super().encode_chat(messages, tools, variables)
        if not digests:
            return tokens
        if tokens.count(self._picture_id) != len(digests):
            raise ValueError("the chat template does not show each picture in its place")
        pictures = map(self._found, digests)
        return [
            each
            for token in tokens
            for each in (self._laid_out(next(pictures)) if token == self._picture_id else (token,))
        ]

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
        first, *rest = MARK.split(text)
        tokens = super().encode(first)
        for digest, behind in zip(rest[::2], rest[1::2], strict=True):
            tokens += self._laid_out(self._found(digest))
            tokens += self.encode_following(behind)
        return tokens

    def check_tokens(self, tokens: Sequence[int]) -> None:
        """Raise ValueError for a placeholder of no picture that is here."""
        keys = {place_of(token).key for token in tokens if token >= PLACEHOLDER_MIN}
        if any(self._store.named(key) is None for key in keys):
            raise ValueError("a picture of the prompt is kept no more: send it again")

    def decode(self, tokens: Sequence[int], skip_special: bool = True) -> str:
        """Return the text of tokens."""
        return super().decode(self._named(tokens), skip_special)

    def stream(
        self,
        prompt: Sequence[int] = (),
        shown: frozenset[int] = frozenset(),
        skip_special: bool = True,
    ) -> DecodeStream:
        """Return an incremental decoder of what continues `prompt`."""
        return super().stream(self._named(prompt), shown, skip_special)

    def token_bytes(self, token: int) -> bytes:
        """Return a token's own bytes."""
        return super().token_bytes(self._picture_id if token >= PLACEHOLDER_MIN else token)

    def _named(self, tokens: Sequence[int]) -> Sequence[int]:
        """Return tokens without placeholders."""
        if max(tokens, default=0) < PLACEHOLDER_MIN:
            return tokens
        return [self._picture_id if token >= PLACEHOLDER_MIN else token for token in tokens]

    def _found(self, digest: str) -> KeptPicture:
        if (found := self._store.find(digest)) is None:
            raise ValueError("a picture of this conversation is kept no more: send it again")
        return found

    def _laid_out(self, picture: KeptPicture) -> list[int]:
        """Return a picture's tokens, its rows as placeholders."""
        rows = placeholders(picture.digest, picture.rows)
        tokens = self.encode_continuation(picture.text)
        found = [next(rows, -1) if token == self._picture_id else token for token in tokens]
        assert -1 not in found and next(rows, None) is None, "a picture's rows and tokens differ"
        return found


def _parts(text: str) -> Iterator[dict[str, str]]:
    """Yield the parts of a content: pictures, and what is between them."""
    for at, each in enumerate(MARK.split(text)):
        if at % 2:
            yield {"type": "image"}
        elif each:
            yield {"type": "text", "text": each}
