"""Replies that were cut and go on: how one is written so far, and what its reader has of it."""

import json
from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import Struct

from draftwerk.speculative.replies.formats import CallFormat, ReplyFormat, written_arguments
from draftwerk.speculative.replies.parser import PartKind, ReplyPart

CALL_GAP = "\n"
"""Between a text and the calls behind it."""


class ReplyPiece(Struct, frozen=True):
    """A piece of a reply as a model writes it."""

    text: str
    is_mark: bool = False
    """Whether it sets parts apart: what it names are control tokens, where they are such."""


class HalfCall(Protocol):
    """A call in a half-written reply."""

    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> str:
        """Its arguments in JSON, as far as they came."""
        ...


def half_written(
    form: ReplyFormat | None,
    reasoning: str,
    text: str,
    calls: Sequence[HalfCall] = (),
    repeats_call: bool = False,
) -> list[ReplyPiece]:
    """Return a reply that is not whole as its model would have written it.

    With `repeats_call` it ends where the arguments of its last call begin. Raises ValueError for
    arguments that were cut, in a format that is no JSON.
    """
    if form is None:
        return [ReplyPiece(text)]
    pieces = _reasoning_pieces(form, reasoning, bool(text or calls))
    if text:
        pieces += [ReplyPiece(_text_open(form, bool(calls)), True), ReplyPiece(text)]
    if calls and form.calls is not None:
        pieces += _between(form, text)
        pieces += _call_pieces(form.calls, calls, repeats_call)
    return [each for each in pieces if each.text]


def _reasoning_pieces(form: ReplyFormat, reasoning: str, goes_on: bool) -> list[ReplyPiece]:
    marks = form.reasoning
    if marks is None or not (reasoning or form.reasoning_open):
        return []
    opened = "" if form.reasoning_open else marks.open
    closed = marks.close + marks.behind if goes_on else ""
    return [ReplyPiece(opened, True), ReplyPiece(reasoning), ReplyPiece(closed, True)]


def _text_open(form: ReplyFormat, has_calls: bool) -> str:
    if form.reasoning is not None and form.reasoning.text_open:
        return form.reasoning.aside_open if has_calls else form.reasoning.text_open
    return "" if form.answer is None else form.answer.open


def _between(form: ReplyFormat, text: str) -> list[ReplyPiece]:
    """Return what stands between a text, if there is one, and the calls behind it."""
    if not text:
        return []
    if form.reasoning is not None and form.reasoning.text_open:
        return [ReplyPiece(form.reasoning.close + form.reasoning.behind, True)]
    closed = "" if form.answer is None else form.answer.close
    return [ReplyPiece(closed, True), ReplyPiece(CALL_GAP)]


def _call_pieces(
    form: CallFormat, calls: Sequence[HalfCall], repeats_last: bool
) -> list[ReplyPiece]:
    pieces = [ReplyPiece(form.begin, True)]
    for number, call in enumerate(calls):
        is_last = number == len(calls) - 1
        if number:
            pieces.append(ReplyPiece(form.again or "", True))
        if form.number_close:
            pieces += [ReplyPiece(str(number)), ReplyPiece(form.number_close, True)]
        pieces += [ReplyPiece(call.name), ReplyPiece(form.middle, True)]
        if not (is_last and repeats_last):
            pieces += _argument_pieces(form, call, is_last)
    return pieces


def _argument_pieces(form: CallFormat, call: HalfCall, is_last: bool) -> list[ReplyPiece]:
    values = _object_of(call.arguments)
    if values is None:
        if form.shape != "json" and call.arguments:
            raise ValueError("the arguments of a call that was cut need its `token_ids`")
        return [ReplyPiece(call.arguments)]
    text = call.arguments if form.shape == "json" else written_arguments(form, values)
    if form.id_close and is_last:
        return [ReplyPiece(text)]  # the model writes the id itself
    return [ReplyPiece(text), ReplyPiece(form.close, True)]


def _object_of(arguments: str) -> dict[str, Any] | None:
    """Return whole arguments, None for those that were cut."""
    try:
        found = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None  # pyright: ignore[reportUnknownVariableType]


class SentText(Protocol):
    """The part of a half-written reply that a reader has."""

    @property
    def text(self) -> str: ...
    @property
    def reasoning(self) -> str: ...


class KnownParts:
    """Text that a reader has, and that a parser or a search for stop strings still holds back."""

    __slots__ = ("_left",)

    def __init__(self, left: dict[PartKind, str] | None = None) -> None:
        self._left = left or {}

    @classmethod
    def beyond(cls, parts: Sequence[ReplyPart], sent: SentText) -> "KnownParts":
        """Return what was sent of a reply beyond the parts that are certain."""
        left: dict[PartKind, str] = {}
        wholes: dict[PartKind, str] = {"text": sent.text, "reasoning": sent.reasoning}
        for kind, whole in wholes.items():
            certain = "".join(each.text for each in parts if each.kind == kind)
            if whole.startswith(certain) and len(whole) > len(certain):
                left[kind] = whole[len(certain) :]
        return cls(left)

    def rest(self, kind: PartKind, text: str) -> str:
        """Return what a reader does not have of the next text of a kind."""
        known = self._left.pop(kind, "")
        shared = next(
            (at for at, (one, other) in enumerate(zip(known, text, strict=False)) if one != other),
            min(len(known), len(text)),
        )
        if shared == len(text) < len(known):
            self._left[kind] = known[shared:]
        return text[shared:]

    def rest_of(self, part: ReplyPart) -> ReplyPart:
        """Return the same of a part."""
        if part.kind not in self._left:
            return part
        return ReplyPart(part.kind, self.rest(part.kind, part.text))


def open_call(parts: Sequence[ReplyPart], repeats: bool) -> list[ReplyPart]:
    """Return the call that a half-written reply ends within, if it does: its name, and with
    `repeats` its arguments so far."""
    starts = [at for at, each in enumerate(parts) if each.kind == "call"]
    if not starts or any(each.kind == "end" for each in parts[starts[-1] :]):
        return []
    name, *rest = parts[starts[-1] :]
    arguments = "".join(each.text for each in rest if each.kind == "arguments")
    name = ReplyPart("call", name.text, goes_on=True)
    return [name, *([ReplyPart("arguments", arguments)] if repeats and arguments else [])]
