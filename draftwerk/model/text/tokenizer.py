"""Tokens and text of one model, torch-free, for the actors that tokenize.

Results equal those of Transformers for the same `tokenizer.json` and chat template.
"""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.vocabularies.tokenizer_config import read_tokenizer_config
from draftwerk.model.text.control_text import NO_GUARD, ControlGuard, guard_of
from draftwerk.model.text.following_text import FollowingText
from draftwerk.model.text.grammar_check import GrammarChecker
from draftwerk.model.text.guarded.tokenizer_trial import try_tokenizer
from draftwerk.model.text.kept_pieces import KeptPieces
from draftwerk.model.text.templates.chat_template import (
    TemplateExceeds,
    TemplateMessage,
    TemplateRefused,
)
from draftwerk.model.text.templates.own_tools import has_calls, worded
from draftwerk.model.text.templates.rerank_form import filled, rerank_form
from draftwerk.model.text.templates.template_file import read_template
from draftwerk.model.text.templates.template_traits import (
    added_tokens,
    call_forms,
    names_reasoning,
    needs_short_ids,
    reasoning_form,
    trial,
    variables_of,
)
from draftwerk.model.text.turns import (
    Turn,
    around_answers,
    call_of,
    content_of,
    joined,
    marked_segments,
    marks_of,
    short_id,
    split_at,
)
from draftwerk.model.text.vocabulary import read_tokenizer
from draftwerk.model.text.vocabulary_text import VocabularyText
from draftwerk.speculative.parameters.bounds import PLACEHOLDER_MIN
from draftwerk.speculative.replies.channels import has_channels
from draftwerk.speculative.replies.half_written import ReplyPiece
from draftwerk.speculative.requests.fim import fim_tokens
from draftwerk.speculative.sampling import Grammar

PASSAGE_END = "\n\n"
"""Behind each document of a completion."""


class TextTokenizer(VocabularyText):
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
        try_tokenizer(directory)
        super().__init__(read_tokenizer(directory))
        self.chat_template = read_template(directory, read_tokenizer_config(directory))
        added = self.tokenizer.get_added_tokens_decoder()
        self.control_names = tuple(
            each.content for each in added.values() if each.special and control_tokens == "text"
        )
        """Names of special tokens that are text in a conversation."""
        self.kept = KeptPieces(self.tokenizer, self.encode_continuation)
        """Tokens of what was encoded before."""
        self._following = FollowingText(self.tokenizer)
        self._grammar_checker = GrammarChecker(directory)
        specials = added_tokens(self.tokenizer)
        with trial(directory, self.chat_template):
            forms = call_forms(self.chat_template, tool_format, specials)
            self.call_format, self.own_format, self.tool_note = forms
            """How the model writes calls, None where it has no way; what words them for a template
            without tools; where both come from."""
            self._id_of = short_id if needs_short_ids(self.chat_template) else str
            self.reasoning_format = reasoning_form(self.chat_template, specials)
            """How it sets its reasoning apart, if it writes any."""
            self.rerank_form = rerank_form(
                directory, name, rerank, self.chat_template, self.tokenizer.token_to_id
            )
            """How it is asked whether a document answers a query, if it is a reranker."""
        self.fim = fim_tokens(self.tokenizer.token_to_id)
        """The tokens that ask for the text between two others, if its vocabulary has that."""
        source = "" if self.chat_template is None else self.chat_template.source
        self.has_channels = has_channels(source)
        """Whether its messages have headers, as harmony's."""
        self.variables = variables_of(self.chat_template)
        """Variables of the chat template that requests may set."""
        template = self.chat_template
        self.shows_documents = template is not None and "documents" in template.variables
        """Whether the chat template has a place for documents."""
        self.reasons = names_reasoning(source)
        """Whether the model writes down its reasoning first, by the names in its template."""

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
        forms = () if pieces is None else around_answers(pieces, answers)
        bare = guard.bare(plain)
        pieces = next((each for each, text in forms if guard.bare(text) == bare), None)
        if pieces is None:  # The template shows an answer otherwise than as it is.
            return self._guarded_tokens(plain, guard)
        tokens = self._guarded_tokens(pieces[0], guard)
        for at, piece in zip(marks, pieces[1:], strict=True):
            tokens += messages[at].tokens
            tokens += self._guarded_tokens(piece, guard, follows=True)
        return tokens

    def _asked(
        self,
        messages: Sequence[Turn],
        tools: Sequence[str],
        variables: Sequence[tuple[str, Any]],
    ) -> "TemplateInput":
        """Return what a template is given, with a mark in the names of control tokens."""
        given = [self.message_of(turn) for turn in messages]
        described, more = [json.loads(each) for each in tools], dict(variables)
        guard = guard_of(self.control_names, (given, described, more))
        return TemplateInput(guard, *map(guard.guarded, (given, described, more)))

    def _rendered(self, asked: "TemplateInput", messages: Sequence[TemplateMessage]) -> str:
        return asked.guard.rendered(self._render(messages, asked.tools, asked.variables))

    def _guarded_tokens(self, text: str, guard: ControlGuard, follows: bool = False) -> list[int]:
        """Return the tokens of a text; `follows` if it stands behind another."""
        return self._following.joined_tokens(guard.pieces(text), self.kept.tokens, follows)

    def check_tokens(self, tokens: Sequence[int]) -> None:
        """Raise ValueError for a placeholder: there are none."""
        if max(tokens, default=0) >= PLACEHOLDER_MIN:
            raise ValueError(f"a token id is outside the vocabulary of {self.vocab_size}")

    def encode_following(self, text: str) -> list[int]:
        """Return the tokens of a text that stands behind another."""
        return self._following.tokens(text)

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
            own = self._guarded_tokens(segment, guard, follows=True)
            if own:
                spans.append((len(tokens), len(tokens) + len(own)))
            tokens += own
            tokens += self._guarded_tokens(piece, guard, follows=True)
        return tokens, spans

    def _render(
        self,
        messages: Sequence[TemplateMessage],
        tools: Sequence[dict[str, Any]],
        variables: dict[str, Any],
    ) -> str:
        if self.own_format is not None and (tools or any(map(has_calls, messages))):
            return self.render_chat(self.worded(messages, tools), **variables)
        return self.render_chat(messages, tools=list(tools) or None, **variables)

    def worded(
        self, messages: Sequence[TemplateMessage], tools: Sequence[dict[str, Any]]
    ) -> list[dict[str, Any]]:
        """Return a conversation whose calls are in words, for a template that knows of none."""
        assert self.own_format is not None, "calls of a model without a format"
        return worded(self.own_format, messages, tools)

    def message_of(self, turn: Turn) -> dict[str, Any]:
        """Return a turn as templates take it."""
        message: dict[str, Any] = {"role": turn.role, "content": content_of(turn)}
        if turn.name:
            message["name"] = turn.name
        if turn.reasoning:
            message["reasoning_content"] = turn.reasoning
            if turn.calls and self.has_channels:  # whose templates take that or content
                message |= _analysed(turn)
        if turn.call_id:
            message["tool_call_id"] = self._id_of(turn.call_id)
        if turn.calls:
            form = self.call_format
            as_text = form is not None and form.arguments_as_text
            message["tool_calls"] = [call_of(each, as_text, self._id_of) for each in turn.calls]
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

    def render_chat(self, messages: Sequence[TemplateMessage], **variables: Any) -> str:
        """Return a conversation as text that ends where the assistant's turn begins.

        Raises Refused where the model has no chat template, and TemplateRefused where the
        template will not have these messages; both are ValueErrors.
        """
        if self.chat_template is None:
            raise Refused("this model has no chat template; use completions")
        try:
            return self.chat_template.render_shown(messages, **variables)
        except TemplateExceeds as error:
            raise TemplateRefused(str(error)) from None

    def encode_pieces(self, pieces: Sequence[ReplyPiece]) -> list[int]:
        """Return the tokens of a half-written reply: what marks its parts may be control tokens."""
        guard = guard_of(self.control_names, [each.text for each in pieces if not each.is_mark])
        guarded = (each.text if each.is_mark else guard.guarded(each.text) for each in pieces)
        return self._guarded_tokens("".join(guarded), guard, follows=True)

    def check_grammar(self, grammar: Grammar, written: Sequence[int] = ()) -> None:
        """Raise ValueError, in words for the client, for a grammar that cannot be followed, or not
        behind the tokens `written`.

        Raises OSError where that cannot be told now.
        """
        self._grammar_checker.check(grammar, tuple(written))


def _analysed(turn: Turn) -> dict[str, str]:
    """Return reasoning with the text before a call in it."""
    texts = (text for text in (turn.reasoning, turn.content) if text)
    return {"reasoning_content": "\n\n".join(texts), "content": ""}


class TemplateInput(NamedTuple):
    """The arguments of a chat template."""

    guard: ControlGuard
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    variables: dict[str, Any]
