"""Streamed replies of every protocol, gathered into what a whole reply of it is."""

import json
from collections.abc import Callable, Iterable, Iterator

from validation.golden_requests import JsonBody


def events_of(text: str) -> Iterator[JsonBody]:
    """Yield the events of a stream, or its lines of JSON."""
    for line in text.splitlines():
        data = line.removeprefix("data: ")
        if data.startswith("{"):
            yield json.loads(data)


def chat_reply(events: Iterable[JsonBody]) -> JsonBody:
    """Return the reply that the chunks of a chat make."""
    message: JsonBody = {"role": "assistant", "content": "", "reasoning_content": ""}
    calls: dict[int, JsonBody] = {}
    logprobs: list[JsonBody] = []
    reason = None
    for choice in (each for event in events for each in event["choices"]):
        delta = choice["delta"]
        for name in ("content", "reasoning_content"):
            message[name] += delta.get(name) or ""
        if "token_ids" in delta:
            message["token_ids"] = delta["token_ids"]
        for part in delta.get("tool_calls") or ():
            call = calls.setdefault(part["index"], {"function": {"name": "", "arguments": ""}})
            call |= {name: part[name] for name in ("id", "type") if name in part}
            for name, value in part["function"].items():
                call["function"][name] += value
        logprobs += (choice.get("logprobs") or {}).get("content") or []
        reason = choice["finish_reason"] or reason
    if calls:
        message["tool_calls"] = list(calls.values())
    chosen = {"message": message, "logprobs": {"content": logprobs}, "finish_reason": reason}
    return {"choices": [chosen]}


def message_reply(events: Iterable[JsonBody]) -> JsonBody:
    """Return the message that events make."""
    reply: JsonBody = {}
    for event in events:
        match event["type"]:
            case "message_start":
                reply = event["message"]
            case "content_block_start":
                reply["content"].append(event["content_block"])
            case "content_block_delta":
                (_, *rest) = event["delta"].items()
                for name, value in rest:
                    block = reply["content"][-1]
                    block[name] = block.get(name, "") + value
            case "message_delta":
                reply |= event["delta"]
            case _:
                pass
    for block in reply["content"]:
        if "partial_json" in block:
            block["input"] = json.loads(block.pop("partial_json"))
    return reply


def response_reply(events: Iterable[JsonBody]) -> JsonBody:
    """Return the response that the last event has."""
    return [*events][-1]["response"]


def ollama_reply(lines: Iterable[JsonBody]) -> JsonBody:
    """Return the line that lines make."""
    told = [*lines]
    message: JsonBody = dict(told[-1]["message"])
    for name in ("content", "thinking"):
        message[name] = "".join(each["message"].get(name, "") for each in told)
    calls = [call for each in told for call in each["message"].get("tool_calls", ())]
    return told[-1] | {"message": message | ({"tool_calls": calls} if calls else {})}


GATHERED: dict[str, Callable[[Iterable[JsonBody]], JsonBody]] = {
    "/v1/chat/completions": chat_reply,
    "/v1/messages": message_reply,
    "/v1/responses": response_reply,
    "/api/chat": ollama_reply,
}
"""By address."""
