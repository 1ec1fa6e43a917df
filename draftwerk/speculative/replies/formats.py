"""How one model writes calls of tools and reasoning, as plain data.

A reply is reasoning, then text, then calls, each of them optional:

    <think> … </think>  text  begin NAME middle ARGUMENTS close  again NAME middle … close  end
                              |         one call         |

A number or an id may stand before each name, one of them behind it, an id behind each `close`, and
marks around text.

Every literal is exactly what the model's chat template writes for a call in the history, so a call
that is sent back is the text that was generated.
"""

import json
from typing import Any, Literal

from msgspec import Struct

from draftwerk.speculative.replies.bare_arguments import written_bare

ArgumentShape = Literal["json", "xml", "python", "bare"]
CALLS_MAX = 16
"""Calls in one reply: a small model that is allowed any number would go on for ever."""


class ArgumentFormat(Struct, frozen=True):
    """How arguments are written where they are no JSON object: one after the other."""

    open: str = ""
    """Before each name."""
    middle: str = "="
    """Between a name and its value."""
    close: str = ""
    """After each value."""
    separator: str = ""
    """Between two arguments."""
    quote: str = ""
    """Around a string; none in an XML-like format."""
    python_words: bool = False
    """Whether truth values and nothing are `True`, `False` and `None`, not JSON's words."""


class CallFormat(Struct, frozen=True):
    """How calls are written, and what in it are single tokens."""

    shape: ArgumentShape
    """`json`: the arguments are one JSON object; `xml`, `python`: each has its name and value;
    `bare`: so have those of objects within them, and strings stand between tokens."""
    trigger: str
    """The beginning of `begin`, which plain text never contains."""
    begin: str
    """Before the first call's name, or its number."""
    middle: str
    """Between a name and its arguments."""
    close: str
    """After the arguments."""
    again: str | None = None
    """Between a call and the next one's name; None where one reply holds one call."""
    end: str = ""
    """After the last call."""
    id_close: str = ""
    """Where the model writes an id behind `close`: what comes after it."""
    number_close: str = ""
    """Where calls are numbered before their names: what stands between the two."""
    id_first: str = ""
    """Where the model writes an id before each name: what stands between the two."""
    id_middle: str = ""
    """Where it writes one behind `middle`: what stands between it and the arguments."""
    numbers_middle: bool = False
    """Whether that is the call's number."""
    first_only: bool = False
    """Whether calls are known only by how a reply begins: there is no marker."""
    arguments: ArgumentFormat = ArgumentFormat()
    specials: tuple[tuple[str, int], ...] = ()
    """The parts of the literals that are single tokens, with their numbers."""
    arguments_as_text: bool = False
    """Whether the template takes the arguments of earlier calls as JSON text, not as an object."""

    @property
    def has_ids(self) -> bool:
        """Whether the model writes an id with each call."""
        return bool(self.id_close or self.id_first or (self.id_middle and not self.numbers_middle))

    @property
    def has_numbers(self) -> bool:
        """Whether it numbers its calls."""
        return bool(self.number_close or self.numbers_middle)

    @property
    def literals(self) -> tuple[str, ...]:
        """Every text of the format."""
        each = self.arguments
        return (
            *(self.begin, self.middle, self.close, self.again or "", self.end, self.id_close),
            *(self.number_close, self.id_first, self.id_middle),
            *(each.open, each.middle, each.close, each.separator, each.quote),
        )


class AnswerMarks(Struct, frozen=True):
    """What stands around a reply's text, and is no part of it."""

    open: str
    close: str
    specials: tuple[tuple[str, int], ...] = ()
    """Which of both are single tokens, with their numbers."""


class ReasoningFormat(Struct, frozen=True):
    """How a model sets its reasoning apart."""

    open: str
    close: str
    specials: tuple[tuple[str, int], ...] = ()
    """Which of both are single tokens, with their numbers."""
    variable: str = ""
    """The chat template's switch that turns reasoning off; empty where there is none."""
    default_on: bool = True
    """Whether the model reasons where the switch is not touched."""
    opens: bool = False
    """Whether the template itself writes `open` at the end of a prompt, where the model reasons."""
    effort: bool = False
    """Whether the template takes an effort."""
    behind: str = ""
    """The text that follows `close` before text or a call."""
    text_open: str = ""
    """Before text, where a reply is messages with headers."""
    aside_open: str = ""
    """There, before text that a call follows."""

    answer: AnswerMarks | None = None
    """The marks around text, where something does."""

    @property
    def is_bounded(self) -> bool:
        """Whether reasoning can be ended after a number of tokens: its end is a token."""
        return any(text == self.close for text, _ in self.specials)


class ReplyFormat(Struct, frozen=True):
    """The format by which one request's reply is parsed."""

    calls: CallFormat | None = None
    """None where no tool may be called."""
    reasoning: ReasoningFormat | None = None
    reasoning_open: bool = False
    """Whether the prompt ends inside reasoning."""
    answer: AnswerMarks | None = None
    """The reasoning format's; also where no reasoning is allowed."""
    raw_strings: tuple[tuple[str, str], ...] = ()
    """The (function, argument) pairs whose values stand in an XML-like format without quotes."""

    @property
    def shown_tokens(self) -> frozenset[int]:
        """Special tokens that belong to the format, and so to the text that is parsed."""
        parts = (self.calls, self.reasoning, self.answer)
        return frozenset(id for part in parts if part is not None for _, id in part.specials)


def written(form: CallFormat, calls: list[tuple[str, dict[str, Any]]], call_id: str = "") -> str:
    """Return calls as a reply holds them; every call gets the one id where the format has ids."""
    texts = [
        _before_name(form, number, call_id)
        + f"{name}{form.middle}"
        + _before_arguments(form, number, call_id)
        + f"{written_arguments(form, values)}{form.close}"
        + (call_id + form.id_close if form.id_close else "")
        for number, (name, values) in enumerate(calls)
    ]
    return form.begin + (form.again or "").join(texts) + form.end


def _before_name(form: CallFormat, number: int, call_id: str) -> str:
    numbered = f"{number}{form.number_close}" if form.number_close else ""
    return numbered + (call_id + form.id_first if form.id_first else "")


def _before_arguments(form: CallFormat, number: int, call_id: str) -> str:
    if not form.id_middle:
        return ""
    return (str(number) if form.numbers_middle else call_id) + form.id_middle


def written_arguments(form: CallFormat, values: dict[str, Any]) -> str:
    """Return the arguments of one call."""
    if form.shape == "json":
        return json.dumps(values, ensure_ascii=False)
    each = form.arguments
    if form.shape == "bare":
        return written_bare(values, each.quote, each.python_words)[1:-1]
    return each.separator.join(
        f"{each.open}{name}{each.middle}{_written_value(form, value)}{each.close}"
        for name, value in values.items()
    )


def _written_value(form: CallFormat, value: Any) -> str:
    quote = form.arguments.quote
    if isinstance(value, str):
        return quote + quotable(value, quote) + quote
    if form.arguments.python_words and (value is None or isinstance(value, bool)):
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def quotable(text: str, quote: str) -> str:
    """Return a text as it stands within quotes; as it is where there are none."""
    if not quote:
        return text
    escaped = json.dumps(text, ensure_ascii=False)[1:-1]
    return escaped if quote == '"' else escaped.replace('\\"', '"').replace("'", "\\'")
