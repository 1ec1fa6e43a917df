"""Protocols whose replies are cut: how each asks, and how its reply is sent back."""

import json
from dataclasses import dataclass, field

from validation.golden_requests import JsonBody

SCHEMA: JsonBody = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 40},
        "days": {"type": "array", "items": {"enum": ["mon", "tue", "wed"]}, "maxItems": 5},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
FUNCTION: JsonBody = {"name": "weather", "description": "Tells it.", "parameters": SCHEMA}


@dataclass
class Said:
    """What a reply says, in any protocol."""

    reasoning: str = ""
    text: str = ""
    calls: dict[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Names, and arguments in JSON, by id."""
    logprobs: list[float] = field(default_factory=list[float])
    is_cut: bool = False

    def then(self, rest: "Said", repeats_call: bool) -> "Said":
        """Return what both say together."""
        calls = dict(self.calls)
        for call_id, (name, arguments) in rest.calls.items():
            _, before = calls.get(call_id, ("", ""))
            calls[call_id] = (name, arguments if repeats_call else before + arguments)
        return Said(
            self.reasoning + rest.reasoning,
            self.text + rest.text,
            calls,
            self.logprobs + rest.logprobs,
            rest.is_cut,
        )

    def differs(self, other: "Said") -> str:
        """Return the first part in which two differ; empty for equal ones."""
        for name in ("reasoning", "text", "logprobs"):
            if getattr(self, name) != getattr(other, name):
                return f"{name}: {getattr(self, name)!r} is not {getattr(other, name)!r}"
        mine, others = [*self.calls.values()], [*other.calls.values()]
        return "" if mine == others else f"calls: {mine} is not {others}"


class Protocol:
    """How one protocol asks, and how its reply is sent back."""

    path = ""
    repeats_call = False
    limit = ("max_tokens",)

    def body(self, kind: str, question: str, seed: int) -> JsonBody:
        raise NotImplementedError

    def said(self, reply: JsonBody) -> Said:
        raise NotImplementedError

    def limited(self, body: JsonBody, count: int) -> JsonBody:
        """Return a body with a limit of tokens."""
        *outer, name = self.limit
        if not outer:
            return body | {name: count}
        return body | {outer[0]: body[outer[0]] | {name: count}}

    def sent_back(self, body: JsonBody, reply: JsonBody) -> JsonBody:
        """Return the request that goes on."""
        return body | {"messages": [*body["messages"], self.message(reply)]}

    def message(self, reply: JsonBody) -> JsonBody:
        raise NotImplementedError


class ChatProtocol(Protocol):
    path = "/v1/chat/completions"

    def body(self, kind: str, question: str, seed: int) -> JsonBody:
        found: JsonBody = {"messages": [{"role": "user", "content": question}], "seed": seed}
        if kind == "json":
            found["response_format"] = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
        if kind == "calls":
            found |= {"tools": [{"type": "function", "function": FUNCTION}]}
            found["tool_choice"] = "required"
        if kind in ("reasoning", "calls"):
            found["thinking_budget"] = 16
        return found | ({"logprobs": True} if kind == "text" else {})

    def said(self, reply: JsonBody) -> Said:
        (choice,) = reply["choices"]
        message = choice["message"]
        calls = message.get("tool_calls") or []
        return Said(
            message.get("reasoning_content") or "",
            message["content"] or "",
            {each["id"]: (*each["function"].values(),) for each in calls},
            [each["logprob"] for each in (choice["logprobs"] or {}).get("content", [])],
            choice["finish_reason"] == "length",
        )

    def message(self, reply: JsonBody) -> JsonBody:
        return reply["choices"][0]["message"]


class MessagesProtocol(Protocol):
    path = "/v1/messages"
    repeats_call = True

    def body(self, kind: str, question: str, seed: int) -> JsonBody:
        found: JsonBody = {"model": "default", "seed": seed, "messages": []}
        found["messages"] = [{"role": "user", "content": question}]
        if kind == "json":
            found["output_config"] = {"format": {"type": "json_schema", "schema": SCHEMA}}
        if kind == "calls":
            found["tools"] = [{"name": "weather", "input_schema": SCHEMA}]
            found["tool_choice"] = {"type": "any"}
        if kind in ("reasoning", "calls"):
            found["thinking"] = {"type": "enabled", "budget_tokens": 16}
        return found

    def said(self, reply: JsonBody) -> Said:
        blocks = reply["content"]
        return Said(
            "".join(each["thinking"] for each in blocks if each["type"] == "thinking"),
            "".join(each["text"] for each in blocks if each["type"] == "text"),
            {
                each["id"]: (each["name"], json.dumps(each["input"]))
                for each in blocks
                if "input" in each
            },
            is_cut=reply["stop_reason"] == "max_tokens",
        )

    def message(self, reply: JsonBody) -> JsonBody:
        names = ("role", "content", "token_ids")
        return {name: reply[name] for name in names if name in reply}


class ResponsesProtocol(Protocol):
    path = "/v1/responses"
    limit = ("max_output_tokens",)

    def body(self, kind: str, question: str, seed: int) -> JsonBody:
        found: JsonBody = {"input": [{"role": "user", "content": question}], "seed": seed}
        if kind == "json":
            found["text"] = {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}
        if kind == "calls":
            found["tools"] = [{"type": "function", **FUNCTION}]
            found["tool_choice"] = "required"
        if kind in ("reasoning", "calls"):
            found["thinking_budget"] = 16
        return found

    def said(self, reply: JsonBody) -> Said:
        found = Said(is_cut=reply["status"] == "incomplete")
        for item in reply["output"]:
            if item["type"] == "function_call":
                found.calls[item["call_id"]] = (item["name"], item["arguments"])
                continue
            text = "".join(part["text"] for part in item["content"])
            if item["type"] == "reasoning":
                found.reasoning += text
            else:
                found.text += text
        return found

    def sent_back(self, body: JsonBody, reply: JsonBody) -> JsonBody:
        return body | {"input": [], "previous_response_id": reply["id"]}


class ItemsProtocol(ResponsesProtocol):
    """The same, with the output sent back as items of the input."""

    def sent_back(self, body: JsonBody, reply: JsonBody) -> JsonBody:
        return body | {"input": [*body["input"], *reply["output"]]}


class OllamaProtocol(Protocol):
    path = "/api/chat"
    repeats_call = True
    limit = ("options", "num_predict")

    def body(self, kind: str, question: str, seed: int) -> JsonBody:
        found: JsonBody = {"model": "default", "stream": False, "options": {"seed": seed}}
        found["messages"] = [{"role": "user", "content": question}]
        if kind == "json":
            found["format"] = SCHEMA
        if kind == "calls":
            found["tools"] = [{"type": "function", "function": FUNCTION}]
        return found | ({"think": "minimal"} if kind == "never" else {})

    def said(self, reply: JsonBody) -> Said:
        message = reply["message"]
        calls = message.get("tool_calls", [])
        return Said(
            message.get("thinking", ""),
            message["content"],
            {
                each["id"]: (each["function"]["name"], json.dumps(each["function"]["arguments"]))
                for each in calls
            },
            is_cut=reply["done_reason"] == "length",
        )

    def message(self, reply: JsonBody) -> JsonBody:
        return reply["message"]


PROTOCOLS: dict[str, Protocol] = {
    "chat": ChatProtocol(),
    "messages": MessagesProtocol(),
    "responses": ResponsesProtocol(),
    "items": ItemsProtocol(),
    "ollama": OllamaProtocol(),
}
