"""Tokens and text of one model, torch-free, for the actors that tokenize.

Results equal those of Transformers for the same `tokenizer.json` and chat template.
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import msgspec
from tokenizers import Tokenizer

from draftwerk.model.checkpoint.files.json_file import read_json
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.text.call_formats import (
    derived_calls,
    derived_reasoning,
    with_specials,
)
from draftwerk.model.text.chat_template import ChatTemplate, TemplateMessage, TemplateRefused
from draftwerk.model.text.control_text import NO_GUARD, ControlGuard, guard_of
from draftwerk.model.text.decode_stream import ByteStream, DecodeStream, WindowStream, byte_alphabet
from draftwerk.model.text.grammar_check import GrammarChecker
from draftwerk.model.text.own_tools import OWN_FORMATS, OwnFormat, has_calls, worded
from draftwerk.model.text.rerank_form import filled, rerank_form
from draftwerk.model.text.turns import (
    Turn,
    call_of,
    joined,
    marked_segments,
    marks_of,
    short_id,
    split_at,
)
from draftwerk.model.text.vocabulary import read_tokenizer, token_count
from draftwerk.speculative.replies.channels import (
    channel_calls,
    channel_reasoning,
    has_channels,
)
from draftwerk.speculative.replies.formats import CallFormat, ReasoningFormat
from draftwerk.speculative.requests.middle import middle_tokens
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
REASONING_WORDS = ("<think>", "enable_thinking", "reasoning_effort")
VARIABLES = (
    "enable_thinking",
    "thinking",
    "reasoning_effort",
    "preserve_thinking",
    "clear_thinking",
    "thinking_budget",
)
"""What requests may give a chat template that asks for it, besides messages and tools."""
PASSAGE_END = "\n\n"
"""Behind each document of a completion."""
WORDED_FORMAT = "hermes"
"""How tools are described where the chat template has no form of calls."""
CONTEXT_COUNT = 8
"""Prompt tokens given to a decoder as the text before."""


class TextTokenizer:
    """A tokenizer and its chat template; safe to share between threads."""

    def __init__(
        self,
        directory: Path,
        tool_format: str = "auto",
        control_tokens: str = "text",
        rerank: str = "auto",
        name: str = "",
    ) -> None:
        """`tool_format` names how calls are written: as the template does, a name of
        OWN_FORMATS for a template that has no tools, or "off". `control_tokens` says what their
        names are in a conversation: "text", or "tokens". `rerank` is as in `rerank_form`, `name`
        the model's.
        """
        self.tokenizer = read_tokenizer(directory)
        self.vocab_size = token_count(self.tokenizer)
        """Token ids with text are below it; the model's vocabulary may be padded beyond."""
        config = read_json(directory / CONFIG) or {}
        self.chat_template = _chat_template(directory, config)
        added = self.tokenizer.get_added_tokens_decoder()
        self.special_token_ids = frozenset(id for id, token in added.items() if token.special)
        self.control_names = tuple(
            each.content for each in added.values() if each.special and control_tokens == "text"
        )
        """Names of special tokens that are text in a conversation."""
        self._bytes = _token_bytes(self.tokenizer)
        self._grammar_checker = GrammarChecker(directory)
        self.own_format: OwnFormat | None = OWN_FORMATS.get(tool_format)
        self.call_format = self._call_format(tool_format)
        """How the model writes calls; None where it has no way."""
        self.middle = middle_tokens(self.tokenizer.token_to_id)
        """What asks for the text between two others, if its vocabulary has that."""
        self.reasoning_format = self._reasoning_format()
        """How it sets its reasoning apart, if it writes any."""
        self.rerank_form = rerank_form(
            directory, name, rerank, self.chat_template, self.tokenizer.token_to_id
        )
        """How it is asked whether a document answers a query, if it is a reranker."""

    def _call_format(self, tool_format: str) -> CallFormat | None:
        if self.chat_template is None or tool_format == "off":
            return None
        specials = added_tokens(self.tokenizer)
        if self.own_format is not None:
            return with_specials(self.own_format.calls, specials)
        if has_channels(self.chat_template.source):
            return channel_calls(specials)
        found = derived_calls(self.chat_template.render, specials)
        if found is None:
            self.own_format = OWN_FORMATS[WORDED_FORMAT]
            found = with_specials(self.own_format.calls, specials)
        return found

    def _reasoning_format(self) -> ReasoningFormat | None:
        template = self.chat_template
        if template is None:
            return None
        specials = added_tokens(self.tokenizer)
        if has_channels(template.source):
            return channel_reasoning(specials, "reasoning_effort" in template.source)
        return derived_reasoning(template.render, template.source, specials)

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables of the chat template that requests may set."""
        source = "" if self.chat_template is None else self.chat_template.source
        # Not the fields of messages that have such names.
        return tuple(each for each in VARIABLES if re.search(rf"(?<![.'\"])\b{each}\b", source))

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

    def encode_chat(
        self,
        messages: Sequence[Turn],
        tools: Sequence[str] = (),
        variables: Sequence[tuple[str, Any]] = (),
    ) -> list[int]:
        """Return a conversation's tokens; the template itself writes the special ones.

        An earlier answer whose tokens are known stays these tokens: its text might be cut into
        others, and the key-value cache has these. `tools` are objects in JSON.
        """
        asked = self._asked(messages, tools, variables)
        guard = asked.guard
        plain = self._rendered(asked, asked.messages)
        known = {at for at, turn in enumerate(messages) if self._stands_for(turn)}
        if not known:
            return self._guarded_tokens(plain, guard)
        marks = marks_of(messages, known)
        marked = [
            {"role": messages[at].role, "content": marks[at]} if at in marks else message
            for at, message in enumerate(asked.messages)
        ]
        text = ""
        with suppress(TemplateRefused):  # a result of a call that is not shown as one
            text = self._rendered(asked, marked)
        pieces = split_at(text, list(marks.values()))
        answers = [self._written(messages[at]) for at in marks]
        if pieces is None or guard.bare(plain) not in (
            joined([guard.bare(piece) for piece in pieces], answers),
            joined([guard.bare(piece) for piece in pieces], [each.strip() for each in answers]),
        ):  # The template shows an answer otherwise than as it is.
            return self._guarded_tokens(plain, guard)
        tokens = self._guarded_tokens(pieces[0], guard)
        for at, piece in zip(marks, pieces[1:], strict=True):
            tokens += messages[at].tokens
            tokens += self._guarded_tokens(piece, guard)
        return tokens

    def _asked(
        self,
        messages: Sequence[Turn],
        tools: Sequence[str],
        variables: Sequence[tuple[str, Any]],
    ) -> "_Asked":
        """Return what a template is given, with a mark in the names of control tokens."""
        given = [self.message_of(turn) for turn in messages]
        described, more = [json.loads(each) for each in tools], dict(variables)
        guard = guard_of(self.control_names, (given, described, more))
        return _Asked(guard, *map(guard.guarded, (given, described, more)))

    def _rendered(self, asked: "_Asked", messages: Sequence[TemplateMessage]) -> str:
        return asked.guard.rendered(self._render(messages, asked.tools, asked.variables))

    def _guarded_tokens(self, text: str, guard: ControlGuard) -> list[int]:
        pieces = guard.pieces(text)
        return [token for piece in pieces for token in self.encode_continuation(piece)]

    def encode_pair(self, query: str, document: str, instruction: str = "") -> list[int]:
        """Return the tokens of the question whether a document answers a query.

        Raises Refused where the model is no reranker, or cannot be told an instruction.
        """
        form = self.rerank_form
        if form is None:
            raise Refused("this model is no reranker")
        if instruction and not form.instruction:
            raise Refused("this model's prompt has no place for an instruction")
        texts = {
            "query": query,
            "document": document,
            "instruction": instruction or form.instruction,
        }
        guard = guard_of(self.control_names, (texts,))
        return self._guarded_tokens(filled(form.template, guard.guarded(texts)), guard)

    def encode_segments(
        self,
        messages: Sequence[Turn],
        tools: Sequence[str] = (),
        variables: Sequence[tuple[str, Any]] = (),
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Return a conversation's tokens, and (start, stop) of each declared segment in them.

        A segment has the tokens of its text alone, wherever it stands. Raises ValueError if the
        template shows one otherwise than as it is.
        """
        asked = self._asked(messages, tools, variables)
        guard = asked.guard
        contents, marks, texts = marked_segments(messages)
        marked = [
            {**message, "content": guard.guarded(content)}
            for message, content in zip(asked.messages, contents, strict=True)
        ]
        pieces = split_at(self._rendered(asked, marked), marks)
        plain = guard.bare(self._rendered(asked, asked.messages))
        if pieces is None or guard.bare(joined(pieces, texts)) != plain:
            raise ValueError("the chat template changes a segment: it cannot be reused")
        start = self._guarded_tokens(pieces[0], guard)
        return self._spans(start, guard.guarded(texts), pieces[1:], guard)

    def encode_passages(
        self, documents: Sequence[str], text: str
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the tokens of documents, each followed by an empty line, and of a text."""
        between = [PASSAGE_END] * len(documents)
        if documents:
            between[-1] += text
        return self._spans(self.encode(""), documents, between)

    def _spans(
        self,
        tokens: list[int],
        texts: Sequence[str],
        behind: Sequence[str],
        guard: ControlGuard = NO_GUARD,
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Append segments, each with the text behind it, and return where they are."""
        spans: list[tuple[int, int]] = []
        for segment, piece in zip(texts, behind, strict=True):
            own = self._guarded_tokens(segment, guard)
            if own:
                spans.append((len(tokens), len(tokens) + len(own)))
            tokens += own
            tokens += self._guarded_tokens(piece, guard)
        return tokens, spans

    def _render(
        self,
        messages: Sequence[TemplateMessage],
        tools: Sequence[dict[str, Any]],
        variables: dict[str, Any],
    ) -> str:
        if self.own_format is not None and (tools or any(map(has_calls, messages))):
            return self.render_chat(worded(self.own_format, messages, tools), **variables)
        return self.render_chat(messages, tools=list(tools) or None, **variables)

    def message_of(self, turn: Turn) -> dict[str, Any]:
        """Return a turn as templates take it."""
        message: dict[str, Any] = {"role": turn.role, "content": turn.content}
        if turn.name:
            message["name"] = turn.name
        if turn.reasoning:
            message["reasoning_content"] = turn.reasoning
            if has_channels("" if self.chat_template is None else self.chat_template.source):
                message |= _analysed(turn)
        if turn.call_id:
            message["tool_call_id"] = short_id(turn.call_id)
        if turn.calls:
            as_text = self.call_format is not None and self.call_format.arguments_as_text
            message["tool_calls"] = [call_of(each, as_text) for each in turn.calls]
        return message

    def _written(self, turn: Turn) -> str:
        """Return the text of an earlier answer whose tokens are known, calls and all."""
        if not (turn.calls or turn.reasoning):
            return turn.content
        forms = (self.call_format, self.reasoning_format)
        shown = frozenset(id for form in forms if form is not None for _, id in form.specials)
        stream = self.stream(shown=shown)
        return "".join(map(stream.push, turn.tokens)) + stream.flush()

    def _stands_for(self, turn: Turn) -> bool:
        """Whether a turn's tokens are its text: not where a stop string cut the text short."""
        if turn.calls or turn.reasoning:
            return bool(turn.tokens)
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
        """Raise ValueError, in words for the client, for a grammar that cannot be followed.

        Raises OSError where that cannot be told now.
        """
        self._grammar_checker.check(grammar)

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


def _analysed(turn: Turn) -> dict[str, str]:
    """Return reasoning as templates of harmony take it: with calls, that or content."""
    if not (turn.calls and turn.content):
        return {"thinking": turn.reasoning}
    return {"thinking": f"{turn.reasoning}\n\n{turn.content}", "content": ""}


def added_tokens(tokenizer: Tokenizer) -> dict[str, int]:
    """Return the tokens that are matched whole, by their text."""
    added = tokenizer.get_added_tokens_decoder()
    return {token.content: id for id, token in added.items()}


class _Asked(NamedTuple):
    """What a chat template is given."""

    guard: ControlGuard
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    variables: dict[str, Any]


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
