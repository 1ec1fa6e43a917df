"""Formats of a made-up model that reasons and calls tools."""

import json
from typing import Any

from draftwerk.speculative.replies.formats import CallFormat, ReasoningFormat, written

CALLS = CallFormat(
    "json",
    "<tool_call>",
    '<tool_call>\n{"name": "',
    '", "arguments": ',
    "}\n</tool_call>",
    '\n<tool_call>\n{"name": "',
)
THINKING = ReasoningFormat(
    "<think>", "</think>", (("</think>", 301), ("<think>", 300)), "enable_thinking"
)
TWO_CALLS = [("weather", {"city": 'Köln "x"'}), ("time_of", {"city": "b"})]
ALL = "<think>\nHm.\n</think>\n\nSo:\n" + written(CALLS, TWO_CALLS)
"""Reasoning, text and calls."""
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


def answer(text: str) -> str:
    """Return what is answered with a text."""
    return "!answer " + json.dumps(text, ensure_ascii=False)


def ask(text: str) -> list[Any]:
    return [{"role": "user", "content": answer(text)}]
