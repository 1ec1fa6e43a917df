"""How a model writes calls, read off its chat template: made-up calls are rendered and compared.

    one call      prefix begin NAME middle ARGUMENTS close            end  suffix
    two calls     prefix begin NAME middle ARGUMENTS close again NAME … close end  suffix
    plain text    prefix TEXT                                              suffix

What is derived must write both renderings again, to the letter; otherwise the model has no format.
"""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from draftwerk.model.text.templates.chat_template import TemplateRefused
from draftwerk.model.text.templates.common_parts import shared, shared_end, whole_marks
from draftwerk.model.text.templates.content_form import CALL_ID, Render
from draftwerk.speculative.replies.formats import (
    ArgumentFormat,
    CallFormat,
    ReplyFormat,
    written,
)
from draftwerk.speculative.replies.parser import ReplyParser, joined_parts

Calls = Sequence[tuple[str, dict[str, Any]]]

FIRST, SECOND = "first_function", "second_function"
ONE, TWO = "argument_one", "argument_two"
VALUE, OTHER = "value_one", "value_two"
MARK = "\ue000"
BARE_QUOTE = '<|"|>'
"""Around strings in Gemma 4's calls, whose names have no quotes."""
CALL_IDS = (CALL_ID, "efgh67890")


def example_tools() -> list[dict[str, Any]]:
    """Return the tools that the made-up calls call."""
    properties = {name: {"type": "string", "description": "Text."} for name in (ONE, TWO)}
    parameters = {"type": "object", "properties": properties}
    return [
        {
            "type": "function",
            "function": {"name": name, "description": "Does it.", "parameters": parameters},
        }
        for name in (FIRST, SECOND)
    ]


def call_message(calls: Calls, as_text: bool) -> dict[str, Any]:
    """Return an assistant's turn of calls as templates take it."""
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "id": call_id,
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(values) if as_text else values},
            }
            for call_id, (name, values) in zip(CALL_IDS, calls, strict=False)
        ],
    }


class Underivable(ValueError):
    """The template's renderings have no form that is known."""


def derived_calls(render: Render, specials: Mapping[str, int]) -> CallFormat | None:
    """Return how calls are written; None for a template that shows none, or none understood."""
    for as_text in (False, True):
        with suppress(TemplateRefused, Underivable, ValueError, IndexError):
            return _Renderings(render, as_text).derived(specials)
    return None


def shows_tools(render: Render) -> bool:
    """Whether a template describes the tools that it is given."""
    try:
        return FIRST in render(made_up_turns("user"), tools=example_tools())
    except (TemplateRefused, ValueError):
        return False


def made_up_turns(*turns: Any) -> list[dict[str, Any]]:
    """Return a conversation; `user` stands for a turn of the user."""
    return [{"role": "user", "content": "Hello."} if each == "user" else each for each in turns]


class _Renderings:
    """A template's renderings of calls, without what any answer has around it."""

    def __init__(self, render: Render, as_text: bool) -> None:
        self.render = render
        self.as_text = as_text
        answer = self._whole({"role": "assistant", "content": MARK})
        self.prefix, mark, self.suffix = answer.partition(MARK)
        if not mark:
            raise Underivable("it does not show an answer")

    def _whole(self, turn: dict[str, Any]) -> str:
        return self.render(
            made_up_turns("user", turn), tools=example_tools(), add_generation_prompt=False
        )

    def of(self, calls: Calls) -> str:
        """Return the text of calls alone."""
        text = self._whole(call_message(calls, self.as_text))
        text = text[len(whole_marks(shared(text, self.prefix))) :]
        ending = shared_end(text, self.suffix)
        found = text[: len(text) - len(ending)].strip()
        # Some models end a turn of calls with a token of its own.
        return found if ending == self.suffix else re.sub(r"<\|[A-Za-z_]+\|>$", "", found)

    def derived(self, specials: Mapping[str, int]) -> CallFormat:
        one = self.of([(FIRST, {ONE: VALUE})])
        begin, name, rest = one.partition(FIRST)
        begin, has_id, id_first = begin.partition(CALL_IDS[0])
        if not name or (has_id and not id_first):
            raise Underivable("no name, or an id before it that does not end")
        form = _json_form(begin, rest) or self._listed_form(begin, rest)
        form = self._with_middle(msgspec.structs.replace(form, id_first=id_first))
        form = _with_numbers(self._with_ids(self._with_second(form)))
        form = msgspec.structs.replace(form, arguments_as_text=self.as_text)
        return self.checked(with_specials(form, specials))

    def _listed_form(self, begin: str, one: str) -> CallFormat:
        """Return the form of arguments that come one after the other."""
        two = self.of([(FIRST, {ONE: VALUE, TWO: OTHER})]).removeprefix(begin + FIRST)
        zero = self.of([(FIRST, {})]).removeprefix(begin + FIRST)
        bare = self.of([(FIRST, {ONE: 7})]).removeprefix(begin + FIRST)
        head, _, tail = one.partition(ONE)
        middle, _, last = tail.partition(VALUE)
        between = two.partition(VALUE)[2].partition(TWO)[0]
        bare_middle = bare.partition(ONE)[2].partition("7")[0]
        words = "True" in self.of([(FIRST, {ONE: True})])
        quote = middle.removeprefix(bare_middle) if middle != bare_middle else ""
        if quote == BARE_QUOTE:
            words = "None" in self.of([(FIRST, {ONE: None})])
        if quote not in ("", "'", '"', BARE_QUOTE) or not last.startswith(quote):
            raise Underivable("values are neither bare nor quoted")
        middle, last = bare_middle, last.removeprefix(quote)
        between = between.removeprefix(quote)
        call_middle = whole_marks(shared(head, zero))
        opened = head[len(call_middle) :]
        if not quote:
            value_close = between.removesuffix(opened)
            listed = ArgumentFormat(opened, middle, value_close, python_words=words)
            close = last.removeprefix(value_close)
            return CallFormat("xml", begin, begin, call_middle, close, arguments=listed)
        listed = ArgumentFormat(opened, middle, "", between.removesuffix(opened), quote, words)
        shape = "bare" if quote == BARE_QUOTE else "python"
        return CallFormat(shape, begin, begin, call_middle, last, arguments=listed)

    def _with_middle(self, form: CallFormat) -> CallFormat:
        """Tell an id, or the call's number, from what is around it behind the name."""
        middle, found, id_middle = form.middle.partition(CALL_IDS[0])
        if found:
            return msgspec.structs.replace(form, middle=middle, id_middle=id_middle)
        numbered = re.fullmatch(r"(\D*)0(\D+)", form.middle)
        if numbered is None:
            return form
        second = self.of([(FIRST, {ONE: VALUE}), (SECOND, {TWO: OTHER})]).partition(SECOND)[2]
        if not second.startswith(f"{numbered[1]}1{numbered[2]}"):
            return form
        return msgspec.structs.replace(
            form, middle=numbered[1], id_middle=numbered[2], numbers_middle=True
        )

    def _with_second(self, form: CallFormat) -> CallFormat:
        """Find out what is between two calls, if there may be two."""
        calls = [(FIRST, {ONE: VALUE}), (SECOND, {TWO: OTHER})]
        tail = form.close
        try:
            both = self.of(calls)
        except TemplateRefused:
            return form
        head = written(msgspec.structs.replace(form, close=""), calls[:1], CALL_IDS[0])
        if not both.startswith(head) or SECOND not in both:
            return form  # only one of them is shown
        inner = both[len(head) :].partition(SECOND)[0]
        if form.id_first:
            inner = inner.removesuffix(CALL_IDS[1] + form.id_first)
        close = whole_marks(shared(inner, tail))
        if any(each in close + inner for each in CALL_IDS):
            close = shared(inner.partition(CALL_IDS[0])[0], tail)
        again, end = inner[len(close) :], tail[len(close) :]
        return msgspec.structs.replace(form, close=close, again=again, end=end)

    def _with_ids(self, form: CallFormat) -> CallFormat:
        """Tell the model's own id from what is around it."""
        tail = form.close + form.end
        if CALL_IDS[0] not in tail:
            return form
        close, _, rest = tail.partition(CALL_IDS[0])
        again = (form.again or "").partition(CALL_IDS[0])[2] if form.again else None
        id_close = rest if again is None else shared(rest, again)
        return msgspec.structs.replace(
            form,
            close=close,
            id_close=id_close,
            again=None if again is None else again[len(id_close) :],
            end=rest[len(id_close) :],
        )

    def checked(self, form: CallFormat) -> CallFormat:
        """Return the form if calls are read in it as the template writes them.

        Raises Underivable. Blanks within arguments may be others, and Python's words in them.
        """
        samples: list[Calls] = [
            [(FIRST, {})],
            [(FIRST, {ONE: VALUE, TWO: 7})],
            [(FIRST, {ONE: False, TWO: None})],
            [(SECOND, {ONE: "a b", TWO: [1, {"x": "y"}]})],
        ]
        if form.again is not None:
            samples.append([(FIRST, {ONE: VALUE}), (SECOND, {TWO: OTHER})])
        for calls in samples:
            text = self.of(calls)
            is_exact = text == written(form, list(calls), CALL_IDS[0])
            if not is_exact and not is_read(form, text, calls):
                raise Underivable("the form does not write what the template writes")
        return form


def is_read(form: CallFormat, text: str, calls: Calls) -> bool:
    """Whether a reply is read as these calls."""
    raw = tuple(
        (name, key)
        for name, values in calls
        for key, value in values.items()
        if form.shape == "xml" and isinstance(value, str)
    )
    parser = ReplyParser(ReplyFormat(calls=form, raw_strings=raw))
    parts = joined_parts(parser.push(text) + parser.flush())
    try:
        values = [json.loads(each.text) for each in parts if each.kind == "arguments"]
    except ValueError:
        return False
    names = [each.text for each in parts if each.kind == "call"]
    others = {each.kind for each in parts} - {"call", "arguments", "id", "end"}
    return not others and list(zip(names, values, strict=False)) == list(calls)


def _json_form(begin: str, rest: str) -> CallFormat | None:
    """Return the form of arguments that are one JSON object; None where they are not."""
    at = rest.find("{")
    while at >= 0:
        with suppress(ValueError):
            found, length = json.JSONDecoder().raw_decode(rest[at:])
            if found == {ONE: VALUE}:
                return CallFormat("json", begin, begin, rest[:at], rest[at + length :])
        at = rest.find("{", at + 1)
    return None


def _with_numbers(form: CallFormat) -> CallFormat:
    """Tell the numbers of calls from what is around them."""
    first, second = re.search(r"0(\D+)$", form.begin), re.search(r"1(\D+)$", form.again or "")
    if first is None or second is None or first[1] != second[1]:
        return form
    return msgspec.structs.replace(
        form,
        begin=form.begin[: first.start()],
        again=(form.again or "")[: second.start()],
        number_close=first[1],
    )


def with_specials(form: CallFormat, specials: Mapping[str, int]) -> CallFormat:
    """Return a form that knows which of its parts are single tokens, and its trigger."""
    found = {
        name: id for name, id in specials.items() if any(name in each for each in form.literals)
    }
    trigger = next((name for name in found if form.begin.startswith(name)), "")
    if not trigger:
        mark = re.match(r"<[^<>\s]*>|\[[A-Z_]+\]|\S+", form.begin)
        trigger = mark[0] if mark else ""
    first_only = form.begin.lstrip().startswith("{")
    if not trigger:
        raise Underivable("nothing marks a call")
    return msgspec.structs.replace(
        form,
        trigger=form.begin if first_only else trigger,
        first_only=first_only,
        specials=tuple(sorted(found.items())),
    )
