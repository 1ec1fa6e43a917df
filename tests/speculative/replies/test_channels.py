"""Replies in channels: reasoning, text and calls apart, however they come in pieces."""

import json
from random import Random

import pytest

from draftwerk.speculative.replies.channels import (
    channel_calls,
    channel_reasoning,
    has_channels,
    parser_of,
)
from draftwerk.speculative.replies.formats import ReplyFormat
from draftwerk.speculative.replies.parser import ReplyPart, joined_parts

CALLS, REASONING = channel_calls({}), channel_reasoning({}, True)
ANALYSIS = "<|channel|>analysis<|message|>Hm, <|not a mark.<|end|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>"
CITY = {"city": 'Köln "x" } <b>'}
CALL = json.dumps(CITY)
CASES: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "text": ("<|channel|>final<|message|>Yes. \n<|return|>", [("text", "Yes. \n")]),
    "reasoning and text": (
        f"{ANALYSIS}{FINAL}Yes.",
        [("reasoning", "Hm, <|not a mark."), ("text", "Yes.")],
    ),
    "a call": (
        f"{ANALYSIS}<|start|>assistant<|channel|>commentary to=functions.weather "
        f"<|constrain|>json<|message|>{CALL}<|call|>",
        [("reasoning", "Hm, <|not a mark."), ("call", "weather"), ("arguments", CALL), ("end", "")],
    ),
    "a recipient before the channel": (
        f" to=functions.weather<|channel|>commentary json<|message|>{CALL}",
        [("call", "weather"), ("arguments", CALL), ("end", "")],
    ),
    "words before a call": (
        "<|channel|>commentary<|message|>Let me see.<|end|><|start|>assistant<|channel|>commentary "
        f"to=functions.weather <|constrain|>json<|message|>{CALL}<|call|>",
        [("text", "Let me see."), ("call", "weather"), ("arguments", CALL), ("end", "")],
    ),
    "two calls": (
        "<|channel|>commentary to=functions.a <|constrain|>json<|message|>{}<|call|>"
        "<|start|>assistant<|channel|>commentary to=functions.b json<|message|>{}<|call|>",
        [pair for name in "ab" for pair in (("call", name), ("arguments", "{}"), ("end", ""))],
    ),
    "two analyses": (
        f"{ANALYSIS}<|start|>assistant<|channel|>analysis<|message|>So.<|end|>{FINAL}1",
        [("reasoning", "Hm, <|not a mark.\n\nSo."), ("text", "1")],
    ),
    "cut in an analysis": ("<|channel|>analysis<|message|>Hm, <|en", [("reasoning", "Hm, <|en")]),
    "cut in a header": (f"{ANALYSIS}<|start|>assi", [("reasoning", "Hm, <|not a mark.")]),
    "cut in a call": (
        '<|channel|>commentary to=functions.weather json<|message|>{"ci',
        [("call", "weather"), ("arguments", '{"ci')],
    ),
    "no header": ("Hello to=you.", [("text", "Hello to=you.")]),
    "nothing": ("", []),
}


def parts_of(pieces: list[str], form: ReplyFormat) -> list[ReplyPart]:
    parser = parser_of(form)
    return joined_parts([part for piece in pieces for part in parser.push(piece)] + parser.flush())


@pytest.mark.parametrize(("text", "wanted"), CASES.values(), ids=CASES)
def test_parts_are_those_of_the_messages_in_any_pieces(text: str, wanted: list) -> None:
    form, rng = ReplyFormat(CALLS, REASONING), Random(text)
    whole = [ReplyPart(*each) for each in wanted]
    assert parts_of([text], form) == whole
    assert parts_of(list(text), form) == whole
    for _ in range(20):
        at = sorted(rng.randrange(len(text) + 1) for _ in range(rng.randrange(8)))
        pieces = [text[a:b] for a, b in zip([0, *at], [*at, len(text)], strict=True)]
        assert parts_of(pieces, form) == whole


def test_without_tools_a_call_is_text() -> None:
    text, _ = CASES["a recipient before the channel"]
    assert parts_of([text], ReplyFormat(None, REASONING)) == [ReplyPart("text", CALL)]


def test_tokens_of_reasoning_are_those_of_its_message() -> None:
    parser = parser_of(ReplyFormat(CALLS, REASONING))
    found: list[bool] = []
    for piece in ("<|channel|>", "analysis", "<|message|>", "Hm", ".", "<|end|>", "<|start|>"):
        found.append(parser.reasons)
        parser.push(piece)
    assert found == [False, False, False, True, True, True, False]


def test_a_template_is_known_by_its_marks() -> None:
    assert has_channels("<|channel|>analysis<|message|>")
    assert not has_channels("<|channel|><|message|>") and not has_channels("<think>analysis")
