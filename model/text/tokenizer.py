"""Tokens and text of one model, torch-free, for the actors that tokenize.

Results equal those of Transformers for the same `tokenizer.json` and chat template.
"""

from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any, Protocol

import jinja2
import msgspec
from tokenizers import Tokenizer

from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.text.chat_template import ChatTemplate, TemplateMessage
from draftwerk.model.text.decode_stream import ByteStream, DecodeStream, WindowStream, byte_alphabet
from draftwerk.model.text.grammar_check import GrammarChecker
from draftwerk.model.text.vocabulary import read_tokenizer, token_count
from draftwerk.speculative.sampling.params import Grammar

CONFIG = "tokenizer_config.json"
SPECIAL_NAMES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
"""What a chat template may name."""
MARK, MARK_END = "\ue000", "\ue001"
"""Characters for private use, which templates pass on and clients do not write."""
REASONING_WORDS = ("<think>", "enable_thinking", "reasoning_effort")
CONTEXT_COUNT = 8
"""Prompt tokens given to a decoder as the text before."""


class Turn(Protocol):
    """A message of a conversation."""

    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str: ...
    @property
    def name(self) -> str:
        """Of the participant; empty for none."""
        ...

    @property
    def tokens(self) -> Sequence[int]:
        """What an earlier answer was generated as; empty where that is not known."""
        ...


class TextTokenizer:
    """A tokenizer and its chat template; safe to share between threads."""

    def __init__(self, directory: Path) -> None:
        self.tokenizer = read_tokenizer(directory)
        self.vocab_size = token_count(self.tokenizer)
        """Token ids with text are below it; the model's vocabulary may be padded beyond."""
        config = read_json(directory / CONFIG) or {}
        self.chat_template = _chat_template(directory, config)
        added = self.tokenizer.get_added_tokens_decoder()
        self.special_token_ids = frozenset(id for id, token in added.items() if token.special)
        self._bytes = _token_bytes(self.tokenizer)
        self._grammar_checker = GrammarChecker(directory)

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

    def encode_chat(self, messages: Sequence[Turn]) -> list[int]:
        """Return a conversation's tokens; the template itself writes the special ones.

        An earlier answer whose tokens are known stays these tokens: its text might be cut into
        others, and the key-value cache has these.
        """
        plain = self.render_chat([message_of(turn, turn.content) for turn in messages])
        known = {at for at, turn in enumerate(messages) if self._stands_for(turn)}
        if not known:
            return self.encode_continuation(plain)
        marks = marks_of(messages, known)
        text = self.render_chat(
            [message_of(turn, marks.get(at, turn.content)) for at, turn in enumerate(messages)]
        )
        pieces = split_at(text, list(marks.values()))
        answers = [messages[at].content for at in marks]
        if pieces is None or plain not in (
            joined(pieces, answers),
            joined(pieces, [answer.strip() for answer in answers]),
        ):  # The template shows an answer otherwise than as it is.
            return self.encode_continuation(plain)
        tokens = self.encode_continuation(pieces[0])
        for at, piece in zip(marks, pieces[1:], strict=True):
            tokens += messages[at].tokens
            tokens += self.encode_continuation(piece) if piece else []
        return tokens

    def _stands_for(self, turn: Turn) -> bool:
        """Whether a turn's tokens are its text: not where a stop string cut the text short."""
        return bool(turn.tokens) and self.decode(turn.tokens).strip() == turn.content.strip()

    @property
    def reasons(self) -> bool:
        """Whether the model writes down its reasoning first, by the names in its template."""
        source = "" if self.chat_template is None else self.chat_template.source
        return any(word in source for word in REASONING_WORDS)

    def render_chat(self, messages: Sequence[TemplateMessage], **variables: Any) -> str:
        """Return a conversation as text that ends where the assistant's turn begins.

        Raises Refused where the model has no chat template, and TemplateRefused where the
        template will not have these messages; both are ValueErrors.
        """
        if self.chat_template is None:
            raise Refused("this model has no chat template; use completions")
        return self.chat_template.render(messages, **variables)

    def check_grammar(self, grammar: Grammar) -> None:
        """Raise ValueError, in words for the client, for a grammar that cannot be followed."""
        self._grammar_checker.check(grammar)

    def decode(self, tokens: Sequence[int], skip_special: bool = True) -> str:
        """Return the text of tokens."""
        return self.tokenizer.decode(list(tokens), skip_special_tokens=skip_special)

    def stream(self, prompt: Sequence[int] = (), skip_special: bool = True) -> DecodeStream:
        """Return an incremental decoder of what continues `prompt`.

        Its pieces joined are the text that the tokens add to the prompt's.
        """
        hidden = self.special_token_ids if skip_special else frozenset[int]()
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


def message_of(turn: Turn, content: str) -> dict[str, str]:
    """Return a turn as templates take it."""
    message = {"role": turn.role, "content": content}
    return message | {"name": turn.name} if turn.name else message


def marks_of(messages: Sequence[Turn], known: Set[int]) -> dict[int, str]:
    """Return a stand-in for the text of each turn whose tokens are known: one that is nowhere."""
    mark = MARK
    while any(mark in turn.content for turn in messages):
        mark += MARK
    return {at: f"{mark}{at}{MARK_END}" for at in sorted(known)}


def split_at(text: str, marks: Sequence[str]) -> list[str] | None:
    """Return what is between the marks, None unless each is there once and in order."""
    pieces: list[str] = []
    for mark in marks:
        piece, found, text = text.partition(mark)
        if not found or mark in text:
            return None
        pieces.append(piece)
    return [*pieces, text]


def joined(pieces: Sequence[str], between: Sequence[str]) -> str:
    """Return pieces with something between each two."""
    pairs = zip(pieces, [*between, ""], strict=True)
    return "".join(piece + text for piece, text in pairs)


def _chat_template(directory: Path, config: dict[str, Any]) -> ChatTemplate | None:
    """Find the template in its own file or in the config; None where there is none.

    Raises Refused for one that is no template, or special tokens that are no text.
    """
    path = directory / CONFIG
    try:
        special = {name: _content(config[name]) for name in SPECIAL_NAMES if config.get(name)}
        source = msgspec.convert(config.get("chat_template"), str | list[_Named] | None)
        if isinstance(source, list):
            source = next((each.template for each in source if each.name == "default"), None)
        if (own := directory / "chat_template.jinja").is_file():
            path = own
            source = own.read_text()
        return ChatTemplate(source, special) if source else None
    except jinja2.TemplateSyntaxError as error:
        raise Refused(f"{path}: the chat template's line {error.lineno}: {error}") from error
    except (msgspec.ValidationError, UnicodeDecodeError) as error:
        raise Refused(f"{path}: chat_template or a special token: {error}") from error


class _Named(msgspec.Struct):
    """A template of several in `tokenizer_config.json`."""

    name: str
    template: str


class _Special(msgspec.Struct):
    """A special token in full."""

    content: str


def _content(token: object) -> str:
    """Return a special token's text, which is either plain or the field of an object."""
    found = msgspec.convert(token, str | _Special)
    return found if isinstance(found, str) else found.content


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
