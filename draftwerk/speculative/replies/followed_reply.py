"""A reply as it comes, compared with one that is half-written: whether that is its beginning."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, NamedTuple

from draftwerk.speculative.replies.half_written import HalfCall
from draftwerk.speculative.replies.parser import ReplyPart

Relation = Literal["within", "called", "reached", "beyond", "apart"]
"""Whether the reply is a beginning of the half-written one, perhaps up to within its last call;
equals it, goes on from it, or differs."""


class Section(NamedTuple):
    """Reasoning, text, a call's name or its arguments."""

    kind: str
    text: str
    is_whole: bool = False


class FollowedReply:
    """Follows one reply, part by part."""

    def __init__(
        self, reasoning: str, text: str, calls: Sequence[HalfCall], repeats_call: bool
    ) -> None:
        """With `repeats_call` the last call's arguments may be the values that were whole of it:
        where its own are others, it was cut."""
        self._half = [Section("reasoning", reasoning)] if reasoning else []
        self._half += [Section("text", text)] if text else []
        for call in calls:
            is_whole = isinstance(_value(call.arguments), dict)
            self._half += [Section("call", call.name)]
            self._half += [Section("arguments", call.arguments, is_whole)]
        self._repeats = repeats_call
        self._found: list[Section] = []

    def add(self, parts: Iterable[ReplyPart]) -> Relation:
        """Take in what comes next; return what the reply is to the half-written one."""
        for part in parts:
            self._add(part)
        return self._relation()

    def _add(self, part: ReplyPart) -> None:
        found = self._found
        match part.kind:
            case "call":
                found += [Section("call", part.text), Section("arguments", "")]
            case "end":
                found[-1] = found[-1]._replace(is_whole=True)
            case "id":
                pass
            case _:
                if found and found[-1].kind == part.kind:
                    found[-1] = found[-1]._replace(text=found[-1].text + part.text)
                else:
                    found.append(Section(part.kind, part.text))

    def _relation(self) -> Relation:
        """Compare section by section; only the last of either may be shorter than its twin."""
        half, found = self._half, self._found
        for at, section in enumerate(found):
            if at == len(half):
                return "beyond"
            if section.kind != half[at].kind:
                return "apart"
            is_last = at == len(half) - 1
            if section.kind == "arguments":
                relation = self._of_arguments(section, half[at], is_last)
            else:
                relation = _of_texts(section, half[at], at == len(found) - 1, is_last)
            if relation != "reached":
                return relation
        return "reached" if len(found) == len(half) else "within"

    def _of_arguments(self, section: Section, twin: Section, is_last: bool) -> Relation:
        if not twin.is_whole:  # cut, and so the last
            return _of_texts(section, twin, True, True)
        if section.is_whole:
            is_same = _value(section.text) == _value(twin.text)
            differs: Relation = "beyond" if is_last and self._repeats else "apart"
            return "reached" if is_same else differs
        if self._repeats:  # how they are spaced is not known
            return "called" if is_last else "within"
        return "within" if twin.text.startswith(section.text) else "apart"


def _of_texts(section: Section, twin: Section, may_grow: bool, is_last: bool) -> Relation:
    if section.text == twin.text:
        return "reached"
    if may_grow and twin.text.startswith(section.text):
        return "within"
    if is_last and section.text.startswith(twin.text):
        return "beyond"
    return "reached" if section.text.strip() == twin.text.strip() else "apart"


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
