"""Formats of calls for models whose chat template has none.

Tools are described in the system message, calls stand in the text of answers, and results come back
in a turn of their own.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from draftwerk.model.text.templates.content_form import CALL_ID, text_of
from draftwerk.speculative.replies.formats import CallFormat, written

HERMES_WORDS = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

For each function call, return a json object with function name and arguments within \
<tool_call></tool_call> XML tags:
<tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>"""
"""As the models of the Hermes and Qwen families are told."""
SHOWN_WORDS = """\
# Tools

You may call one or more functions to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{tools}
</tools>

Write each function call exactly so:
"""
"""For a model whose template shows calls, and no tools; an example follows."""
SMOLLM_WORDS = """\
You are an expert in composing functions. You are given a question and a set of possible \
functions. Based on the question, you will need to make one or more function/tool calls to \
achieve the purpose. If none of the functions can be used, point it out and refuse \
to answer. If the given question lacks the parameters required by the function, also point it out.

You have access to the following tools:
<tools>[{tools}]</tools>

The output MUST strictly adhere to the following format, and NO other text MUST be included.
<tool_call>[
{"name": "func_name1", "arguments": {"argument1": "value1", "argument2": "value2"}}
]</tool_call>"""
"""After the model card of SmolLM2 1.7B."""


class OwnFormat(Struct, frozen=True):
    """A way of calling that the model is told of in words."""

    calls: CallFormat
    words: str
    """For the system message, with a place for the tools."""
    between: str
    """Between the descriptions of two tools."""
    joint: str = "\n\n"
    """Between a system message and the words."""
    describes_bare: bool = False
    """Whether a tool is described by its function alone, without a type around it."""
    result_role: str = "user"
    result: tuple[str, str] = ("<tool_response>\n", "\n</tool_response>")
    """Around the result of a call."""
    shows_calls: bool = False
    """Whether the template shows earlier calls and their results by itself."""
    mark: str = ""
    """What a template has that is made for it, though it shows no tools by itself."""


OWN_FORMATS = {
    "hermes": OwnFormat(
        CallFormat(
            "json",
            "<tool_call>",
            '<tool_call>\n{"name": "',
            '", "arguments": ',
            "}\n</tool_call>",
            '\n<tool_call>\n{"name": "',
        ),
        HERMES_WORDS,
        "\n",
    ),
    "smollm": OwnFormat(
        CallFormat(
            "json",
            "<tool_call>",
            '<tool_call>[\n{"name": "',
            '", "arguments": ',
            "}",
            ',\n{"name": "',
            "\n]</tool_call>",
        ),
        SMOLLM_WORDS,
        ", ",
    ),
    "phi": OwnFormat(
        CallFormat(
            "json",
            "<|tool_call|>",
            '<|tool_call|>[{"name": "',
            '", "arguments": ',
            "}",
            ', {"name": "',
            "]<|/tool_call|>",
        ),
        "<|tool|>[{tools}]<|/tool|>",
        ", ",
        joint="",
        describes_bare=True,
        result_role="tool_response",
        result=("", ""),
        mark="<|tool|>",
    ),
}


def worded(
    form: OwnFormat, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Return a conversation for a template that knows of no tools."""
    found: list[dict[str, Any]] = []
    for message in messages:
        turn = dict(message) if form.shows_calls else _turn(form, message)
        if turn.get("results") and found and found[-1].get("results"):
            found[-1]["content"] += "\n" + turn["content"]
        else:
            found.append(turn)
    if tools:
        told = [each["function"] for each in tools] if form.describes_bare else tools
        described = form.between.join(json.dumps(each, ensure_ascii=False) for each in told)
        words = form.words.replace("{tools}", described)
        if found and found[0]["role"] == "system":
            found[0]["content"] = text_of(found[0]["content"]) + form.joint + words
        else:
            found.insert(0, {"role": "system", "content": words})
    return [{name: each[name] for name in each if name != "results"} for each in found]


def shown_words(calls: CallFormat) -> OwnFormat:
    """Return what describes tools to a model whose template shows its calls alone."""
    sample = written(calls, [("<function-name>", {"<argument-name>": "<value>"})], CALL_ID)
    return OwnFormat(calls, SHOWN_WORDS + sample, "\n", shows_calls=True)


def has_calls(message: Mapping[str, Any]) -> bool:
    """Whether a message holds calls, or the result of one."""
    return bool(message.get("tool_calls")) or message["role"] == "tool"


def _turn(form: OwnFormat, message: Mapping[str, Any]) -> dict[str, Any]:
    content: str = text_of(message["content"])
    if message["role"] == "tool":
        wrapped = content.join(form.result)
        return {"role": form.result_role, "content": wrapped, "results": True}
    calls: list[dict[str, Any]] = message.get("tool_calls") or []
    if not calls:
        return {"role": message["role"], "content": content}
    text = written(
        form.calls,
        [(each["function"]["name"], each["function"]["arguments"]) for each in calls],
    )
    return {"role": "assistant", "content": f"{content}\n{text}" if content else text}
