"""Formats of a made-up model that reasons and calls tools."""

from draftwerk.speculative.replies.formats import CallFormat, ReasoningFormat

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
