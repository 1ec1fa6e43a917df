"""A reply that was cut goes on where its reader's part of it ends, wherever that was."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.replies.channels import channel_calls, channel_reasoning, parser_of
from draftwerk.speculative.replies.followed_reply import FollowedReply
from draftwerk.speculative.replies.formats import (
    ArgumentFormat,
    CallFormat,
    ReasoningFormat,
    ReplyFormat,
    written,
)
from draftwerk.speculative.replies.half_written import KnownParts, half_written, open_call
from draftwerk.speculative.replies.parser import ReplyPart, joined_parts
from draftwerk.speculative.request import Written

HERMES = CallFormat(
    "json",
    "<tool_call>",
    '<tool_call>\n{"name": "',
    '", "arguments": ',
    "}\n</tool_call>",
    '\n<tool_call>\n{"name": "',
)
XML = CallFormat(
    "xml",
    "<tool_call>",
    "<tool_call>\n<function=",
    ">\n",
    "</function>\n</tool_call>",
    "\n<tool_call>\n<function=",
    arguments=ArgumentFormat("<parameter=", ">\n", "\n</parameter>\n"),
)
THINKS = ReasoningFormat("<think>", "</think>")
CALLS = [("weather", {"city": "Köln", "days": [1, 2]}), ("time_of", {})]
REPLIES = {
    "text": (None, "So it is: \n\n 1 <2>\n"),
    "hermes": (
        ReplyFormat(HERMES, THINKS),
        "<think>\nHm, so.\n</think>\n\nWell:\n\n 1.\n" + written(HERMES, CALLS),
    ),
    "open": (ReplyFormat(None, THINKS, reasoning_open=True), "\nHm </b>.\n\n</think>\n\nWell.\n"),
    "xml": (ReplyFormat(XML, raw_strings=(("weather", "city"),)), written(XML, CALLS)),
    "harmony": (
        ReplyFormat(channel_calls({}), channel_reasoning({}, True)),
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"
        "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
        '{"city": "Köln"}<|call|>',
    ),
}


@dataclass
class Call:
    name: str
    arguments: str


def pushed(form: ReplyFormat | None, text: str, last: bool = False) -> list[ReplyPart]:
    """Return the parts of a text that are certain, or with `last` all of them."""
    if form is None:
        return [ReplyPart("text", text)] if text else []
    parser = parser_of(form)
    found = [part for each in text for part in parser.push(each)]
    return joined_parts([*found, *(parser.flush() if last else [])])


def of_kind(parts: list[ReplyPart], kind: str) -> str:
    return "".join(part.text for part in parts if part.kind == kind)


def calls_of(parts: list[ReplyPart]) -> list[Call]:
    calls: list[Call] = []
    for part in parts:
        if part.kind == "call":
            calls.append(Call(part.text, ""))
        if part.kind == "arguments":
            calls[-1].arguments += part.text
    return calls


def gone_on(
    form: ReplyFormat | None, text: str, at: int, had: Written
) -> tuple[list[ReplyPart], list[ReplyPart]]:
    """Return the call that a reply is within at a place, and the parts behind that."""
    before = pushed(form, text[:at])
    known = KnownParts.beyond(before, had)
    if form is None:
        return [], [ReplyPart("text", known.rest("text", text[at:]))]
    parser = parser_of(form)
    for each in text[:at]:
        parser.push(each)
    found = [part for each in text[at:] for part in parser.push(each)] + parser.flush()
    return open_call(before, had.repeats_call), [known.rest_of(part) for part in found]


@pytest.mark.parametrize("name", REPLIES)
@pytest.mark.parametrize("repeats", [False, True])
def test_what_was_sent_and_what_comes_are_the_whole_wherever_it_was_cut(
    name: str, repeats: bool
) -> None:
    form, text = REPLIES[name]
    whole = pushed(form, text, last=True)
    for at in range(len(text) + 1):
        had = pushed(form, text[:at])
        begun, rest = gone_on(form, text, at, Written((1,), repeats_call=repeats))
        for kind in ("text", "reasoning"):
            assert of_kind(had, kind) + of_kind(rest, kind) == of_kind(whole, kind), at
        calls, others = calls_of(had), calls_of([*begun, *rest])
        if begun:
            cut, first = calls.pop(), others.pop(0)
            arguments = first.arguments if repeats else cut.arguments + first.arguments
            calls.append(Call(cut.name, arguments))
            assert cut.name == first.name
        assert calls + others == calls_of(whole), at


@given(st.integers(0, 19), st.integers(0, 19))
def test_text_that_a_reader_has_already_is_not_sent_again(at: int, beyond: int) -> None:
    """Its tokens are known up to one place, and its text up to another behind it."""
    _, text = REPLIES["text"]
    sent = text[: max(at, beyond)]
    _, rest = gone_on(None, text, at, Written((1,), text=sent))
    assert sent + of_kind(rest, "text") == text


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_is_followed_to_where_it_was_cut(name: str) -> None:
    form, text = REPLIES[name]
    for at in range(len(text) + 1):
        had = pushed(form, text[:at])
        half = of_kind(had, "reasoning"), of_kind(had, "text"), calls_of(had)
        parser = None if form is None else parser_of(form)
        followed, relations = FollowedReply(*half, False), ["within"]
        for each in text[:at]:
            parts = [ReplyPart("text", each)] if parser is None else parser.push(each)
            relations.append(followed.add(parts))
        assert not {"apart", "beyond"} & {*relations}
        is_open = had[-1:] and had[-1].kind == "arguments"  # whole perhaps, and not closed
        assert relations[-1] == "reached" or not at or is_open


@pytest.mark.parametrize("name", ["text", "hermes", "open"])
def test_a_reply_that_says_something_else_is_apart(name: str) -> None:
    form, text = REPLIES[name]
    had = pushed(form, text, last=True)
    half = of_kind(had, "reasoning"), of_kind(had, "text") + "!", calls_of(had)
    relations = [
        FollowedReply(*half, False).add(pushed(form, text[:at])) for at in range(len(text))
    ]
    assert "reached" not in relations[1:]
    longer = of_kind(had, "reasoning"), of_kind(had, "text")[:-3], list[Call]()
    assert FollowedReply(*longer, False).add(had) == "beyond"


def test_a_call_whose_arguments_are_told_again_is_reached_where_it_begins() -> None:
    form, text = REPLIES["hermes"]
    had = pushed(form, text, last=True)
    half = of_kind(had, "reasoning"), of_kind(had, "text")
    cut = Call("time_of", '{"zone":"no such value"}')
    calls = [Call("weather", '{"days":[1,2],"city":"Köln"}'), Call("time_of", "{}")]
    relations = [
        FollowedReply(*half, calls, True).add(pushed(form, text[:at])) for at in range(len(text))
    ]
    first = relations.index("called")
    assert text[:first].endswith('{"name": "time_of", "arguments": ')
    assert FollowedReply(*half, calls, True).add(had) == "reached"
    assert FollowedReply(*half, [calls[0], cut], True).add(had) == "beyond"


@pytest.mark.parametrize("name", REPLIES)
def test_a_half_written_reply_is_written_as_its_model_would(name: str) -> None:
    """So far as what its reader has tells: it is read as the same again."""
    form, text = REPLIES[name]
    for at in range(len(text) + 1):
        had = pushed(form, text[:at])
        said = of_kind(had, "reasoning").strip(), of_kind(had, "text").strip(), calls_of(had)
        try:
            pieces = half_written(form, *said)
        except ValueError:
            assert name == "xml" and said[2]
            continue
        again = pushed(form, "".join(piece.text for piece in pieces))
        if name == "open" and not at:
            continue
        for kind, wanted in (("reasoning", said[0]), ("text", said[1])):
            assert wanted.startswith(of_kind(again, kind).strip())
        assert [each.name for each in calls_of(again)] == [each.name for each in said[2]]


def test_marks_in_what_a_reader_wrote_are_none() -> None:
    form, _ = REPLIES["hermes"]
    pieces = half_written(form, "", "<think>", [Call("a", '{"b": 1}')])
    assert [piece.text for piece in pieces if not piece.is_mark][:1] == ["<think>"]
