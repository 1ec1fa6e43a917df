"""Turns of a conversation as chat templates take them, and marks that stand for known answers."""

import json
import re
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from hashlib import sha256
from itertools import pairwise
from typing import Any, Protocol, cast

from draftwerk.model.text.templates.content_form import parts_of
from draftwerk.speculative.replies.whole_values import whole_values

MARK, MARK_END = "\ue000", "\ue001"
"""Characters for private use, which templates pass on and clients do not write."""
CALL_ID = re.compile(r"[A-Za-z0-9]{9}$")
CALL_ID_LENGTH = 9
"""Letters and digits, as the templates that check them demand."""


class EarlierCall(Protocol):
    """A call of a tool in an earlier answer."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def arguments(self) -> str:
        """One object in JSON, or what came of one."""
        ...


class Turn(Protocol):
    """A message of a conversation."""

    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str: ...
    @property
    def name(self) -> str:
        """The participant's name; empty for none."""
        ...

    @property
    def tokens(self) -> Sequence[int]:
        """The tokens that an earlier answer was generated as; empty where that is not known."""
        ...

    @property
    def calls(self) -> Sequence[EarlierCall]: ...
    @property
    def call_id(self) -> str:
        """The call that a tool's result belongs to."""
        ...

    @property
    def reasoning(self) -> str:
        """The reasoning before an earlier answer, where that is known."""
        ...

    @property
    def segments(self) -> Sequence[tuple[int, int]]:
        """(start, stop) of each segment in the content."""
        ...

    @property
    def parts(self) -> Sequence[int]:
        """Where each of several parts of the content ends."""
        ...


def content_of(turn: Turn) -> str | list[dict[str, str]]:
    """Return a turn's content: a text, or several parts."""
    if not turn.parts or turn.segments:
        return turn.content
    starts = (0, *turn.parts)
    return parts_of(*(turn.content[start:stop] for start, stop in pairwise(starts)))


def call_of(call: EarlierCall, as_text: bool, id_of: Callable[[str], str]) -> dict[str, Any]:
    """Return a call as templates take it; `id_of` makes the id that they take."""
    arguments = call.arguments if as_text else arguments_of(call.arguments)
    function = {"name": call.name, "arguments": arguments}
    return {"id": id_of(call.id), "type": "function", "function": function}


def arguments_of(text: str) -> dict[str, Any]:
    """Return a call's arguments; of those that are cut or no object, the values that are whole."""
    found = _object_in(text)
    if found is None:
        found = _object_in(whole_values(text)) or {}
    return _in_whole_characters(found)


def _object_in(text: str) -> dict[str, Any] | None:
    """Return the object that a text is in JSON; None where it is none."""
    with suppress(ValueError, RecursionError):
        found = json.loads(text)
        if isinstance(found, dict):
            return cast("dict[str, Any]", found)
    return None


def _in_whole_characters(value: Any) -> Any:
    """Return JSON without halves of surrogate pairs, which no tokenizer takes."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        text = json.dumps(value, ensure_ascii=False)
        return json.loads(text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"))
    return value


def short_id(call_id: str) -> str:
    """Return the nine letters and digits that a call's id ends in, or that stand for it."""
    found = CALL_ID.search(call_id)
    return found[0] if found else sha256(call_id.encode()).hexdigest()[:CALL_ID_LENGTH]


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


def around_answers(
    pieces: Sequence[str], answers: Sequence[str]
) -> Iterator[tuple[list[str], str]]:
    """Yield what stands around answers, and the text of both: as they are, and stripped.

    A template that strips an answer writes the white space before it by itself: an answer whose
    tokens begin with that has it once.
    """
    yield [*pieces], joined(pieces, answers)
    leads = [answer[: len(answer) - len(answer.lstrip())] for answer in answers]
    before = [piece.removesuffix(lead) for piece, lead in zip(pieces, leads, strict=False)]
    yield [*before, pieces[-1]], joined(pieces, [answer.strip() for answer in answers])


def marked_segments(messages: Sequence[Turn]) -> tuple[list[str], list[str], list[str]]:
    """Return contents with a mark for each segment, the marks, and the segments' texts."""
    mark = MARK
    while any(mark in turn.content for turn in messages):
        mark += MARK
    contents: list[str] = []
    marks: list[str] = []
    texts: list[str] = []
    for turn in messages:
        content, before = "", 0
        for start, stop in turn.segments:
            marks.append(f"{mark}{len(marks)}{MARK_END}")
            texts.append(turn.content[start:stop])
            content += turn.content[before:start] + marks[-1]
            before = stop
        contents.append(content + turn.content[before:])
    return contents, marks, texts
