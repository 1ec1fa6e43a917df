"""Calls that a model of random weights is made to write, in the words of each protocol."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

RequestJson = dict[str, Any]
MESSAGES = "/messages"


@dataclass(frozen=True, slots=True)
class ForcedCall:
    """A call of one tool, with its arguments."""

    tool: str
    arguments: RequestJson

    @property
    def schema(self) -> RequestJson:
        """What admits nothing but these arguments."""
        properties = {name: {"enum": [value]} for name, value in self.arguments.items()}
        return {
            "type": "object",
            "properties": properties,
            "required": list(properties),
            "additionalProperties": False,
        }


def forced(path: str, body: RequestJson, calls: Sequence[ForcedCall], done: int) -> RequestJson:
    """Return a request that demands the call that is due; once all are done, that calls nothing.

    A request without tools is left as it is.
    """
    if not body.get("tools"):
        return body
    if done < len(calls):
        return demanding(path, body, calls[done])
    return {**body, "tool_choice": {"type": "none"} if path.endswith(MESSAGES) else "none"}


def demanding(path: str, body: RequestJson, call: ForcedCall) -> RequestJson:
    """Return a request that demands a call, whose tool admits these arguments alone."""
    body = json.loads(json.dumps(body))
    for tool in tools_of(body):
        if tool.get("name") == call.tool:
            if path.endswith(MESSAGES):
                tool["input_schema"] = call.schema
                return {**body, "tool_choice": {"type": "tool", "name": call.tool}}
            tool["parameters"] = call.schema
            return {**body, "tool_choice": {"type": "function", "name": call.tool}}
        if (function := tool.get("function", {})).get("name") == call.tool:
            function["parameters"] = call.schema
            choice = {"type": "function", "function": {"name": call.tool}}
            return {**body, "tool_choice": choice}
    raise LookupError(f"the agent has no tool {call.tool}, but {', '.join(names_of(body))}")


def tools_of(body: RequestJson) -> Iterator[RequestJson]:
    """Yield a request's tools, those inside namespaces too."""
    for tool in body["tools"]:
        yield tool
        yield from tool.get("tools") or ()


def names_of(body: RequestJson) -> list[str]:
    """Return the names of a request's tools."""
    names = (each.get("name") or each.get("function", {}).get("name") for each in tools_of(body))
    return [name for name in names if name]


def result_ids(body: RequestJson) -> Iterator[str]:
    """Yield the ids of the calls whose results a request has, in any protocol."""
    for message in body.get("messages") or ():
        if message.get("role") == "tool":
            yield message.get("tool_call_id", "")
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if part.get("type") == "tool_result":
                yield part["tool_use_id"]
    items = body.get("input")
    for item in items if isinstance(items, list) else ():
        if str(item.get("type")).endswith("_call_output"):
            yield item["call_id"]
