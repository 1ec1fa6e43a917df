"""Whatever is wrong with a request is refused at once, in our words, with the field's name."""

import asyncio
import json
import re
import time
from typing import Any

import httpx
import msgspec
import pytest

from draftwerk.api.anthropic.schema import MessagesBody
from draftwerk.api.ollama.schema import OllamaOptions
from draftwerk.api.openai.responses.responses_schema import ResponsesBody
from draftwerk.api.openai.schema import ChatBody, CompletionBody
from draftwerk.api.requests.field_rows import rows_of
from tests.api.conftest import HELLO, Served
from tests.support.cpu_pace import as_here

TOOL = {"type": "function", "function": {"name": "f"}}
BAD_FIELDS: list[tuple[dict[str, Any], str]] = [
    ({"n": 10**9}, "n"),
    ({"n": 0}, "n"),
    ({"n": 1.5}, "n"),
    ({"n": "2"}, "n"),
    ({"n": 10**30}, "n"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": -0.1}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": 2}, "min_p"),
    ({"seed": 2**64}, "seed"),
    ({"stop": ["x"] * 5}, "stop"),
    ({"stop": ["x"] * 60_000}, "stop"),
    ({"stop": [""]}, "stop[0]"),
    ({"stop": "x" * 257}, "stop"),
    ({"stop": 5}, "stop"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"1": 101}}, "logit_bias[...]"),
    ({"logit_bias": {"300": 1}}, "logit_bias"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 2, "max_completion_tokens": 3}, "max_completion_tokens"),
    ({"max_tokens": 2, "min_tokens": 3}, "min_tokens"),
    ({"min_tokens": 4097}, "min_tokens"),
    ({"top_logprobs": 3}, "top_logprobs"),
    ({"top_logprobs": 21, "logprobs": True}, "top_logprobs"),
    ({"logprobs": 3}, "logprobs"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"stream": True, "stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
    ({"messages": []}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "function", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
    (
        {"messages": [{"role": "user", "content": "x", "tool_call_id": "a"}]},
        "messages[0].tool_call_id",
    ),
    ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "a"}]}, "messages[0]"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
        "messages[0].content[0].type",
    ),
    (
        {"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]},
        "messages[0].tool_calls[0].function",
    ),
    ({"messages": [{"role": "user", "content": "x", "name": "A" * 257}]}, "messages[0].name"),
    ({"messages": [{"role": "assistant", "refusal": 5}]}, "messages[0].refusal"),
    ({"messages": [{"role": "assistant", "audio": {"id": "a"}}]}, "messages[0].audio"),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
    ({"chat_template_kwargs": {"tools": "x"}}, "chat_template_kwargs"),
    ({"logprob_token_ids": [5]}, "logprob_token_ids"),
    ({"chat_template_kwargs": {"enable_thinking": []}}, "chat_template_kwargs[...]"),
    ({"thinking_budget": 5}, "thinking_budget"),
    ({"store": "yes"}, "store"),
    ({"metadata": {"a": 1}}, "metadata[...]"),
    ({"metadata": {"a": "b" * 513}}, "metadata[...]"),
    ({"prompt_cache_retention": "forever"}, "prompt_cache_retention"),
    (
        {"stream": True, "stream_options": {"include_obfuscation": True}},
        "stream_options.include_obfuscation",
    ),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"prompt_logprobs": -1}, "prompt_logprobs"),
    ({"guided_json": [1]}, "guided_json"),
    ({"guided_json": '{"a'}, "guided_json"),
    ({"guided_json": {"const": 2**53 + 1}}, "guided_json"),
    ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice"),
    ({"ebnf": 'root ::= "a"', "regex": "a"}, "ebnf"),
    ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex"),
    ({"structured_outputs": {"regex": 5}}, "structured_outputs.regex"),
    ({"bad_words": ["a"], "guided_regex": "b"}, "bad_words"),
    ({"stop_token_ids": [300]}, "stop_token_ids"),
    ({"stop_token_ids": [3], "guided_regex": "b"}, "stop_token_ids"),
    ({"chat_template": "{{ 7*7 }}"}, "chat_template"),
    ({"modalities": ["audio"]}, "modalities"),
    ({"allowed_token_ids": []}, "allowed_token_ids"),
    ({"allowed_token_ids": [5, 300]}, "allowed_token_ids"),
    ({"skip_special_tokens": False}, "skip_special_tokens"),
    ({"continue_final_message": True}, "continue_final_message"),
    ({"reasoning_effort": "extreme"}, "reasoning_effort"),
    ({"verbosity": "none"}, "verbosity"),
    ({"service_tier": "first"}, "service_tier"),
    ({"max_output_tokens": 5}, "max_output_tokens"),
    ({"speculation": {"methods": ["magic"]}}, "speculation.methods"),
    ({"speculation": {"draft_max": 10**9}}, "speculation.draft_max"),
    ({"prediction": {"type": "other", "content": "x"}}, "prediction.type"),
    ({"include": ["everything"]}, "include"),
    ({"cache_salt": "x" * 257}, "cache_salt"),
]

AT_ONCE_S = 0.05
"""Of CPU, client and server: what takes time by the square of a body takes minutes."""


async def posted(served: Served, body: bytes) -> tuple[float, httpx.Response]:
    """Return the reply and the seconds of CPU that it took, client and server; best of three."""
    took: list[float] = []
    for _ in range(3):
        started = time.process_time()
        reply = await served.http.post("/v1/chat/completions", content=body)
        took.append(time.process_time() - started)
    return min(took), reply


@pytest.mark.parametrize(("fields", "param"), BAD_FIELDS, ids=lambda each: str(each)[:40])
async def test_a_bad_field_is_named(served: Served, fields: dict[str, Any], param: str) -> None:
    body = json.dumps({"messages": HELLO, **fields}).encode()
    entered = served.engine.entered
    took, reply = await posted(served, body)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, param)
    assert param.split("[")[0].split(".")[0] in error["message"]
    assert set(error) == {"message", "type", "param", "code"}
    assert took < as_here(AT_ONCE_S)
    assert served.engine.entered == entered


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": []},
        {"tool_choice": "none"},
        {"response_format": {"type": "text"}},
        {"beam_width": 1, "length_penalty": 1.0, "early_stopping": False},
        {"modalities": ["text"]},
        {"guided_json": None},
        {"service_tier": "auto", "reasoning_effort": "none", "best_of": 1, "echo": False},
        {"top_p": 0, "top_k": -1},
        {"messages": [{"role": "user", "content": "x", "name": None}], "store": False},
        {"parallel_tool_calls": False, "prompt_cache_key": "a", "safety_identifier": "b"},
    ],
)
async def test_harmless_values_of_refused_fields_are_fine(
    served: Served, fields: dict[str, Any]
) -> None:
    assert (await served.chat(**fields)).status_code == 200


@pytest.mark.parametrize(
    ("path", "fields", "alternative"),
    [
        ("chat/completions", {"messages": HELLO, "functions": [1]}, "`tools`"),
        ("completions", {"prompt": "x", "max_completion_tokens": 5}, "`max_tokens`"),
        ("responses", {"input": "x", "max_tokens": 5}, "`max_output_tokens`"),
        ("responses", {"input": "x", "prompt": {"id": "p"}}, "`input`"),
    ],
)
async def test_a_refusal_names_the_alternative(
    served: Served, path: str, fields: dict[str, Any], alternative: str
) -> None:
    reply = await served.http.post("/v1/" + path, json=fields)
    assert reply.status_code == 400
    assert f"; use {alternative}" in reply.json()["error"]["message"]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat/completions", {"messages": HELLO, "tools": [TOOL]}),
        ("responses", {"input": "x", "tools": [{"type": "function", "name": "f"}]}),
    ],
)
async def test_tools_of_a_model_without_calls_are_refused(
    served: Served, path: str, fields: dict[str, Any]
) -> None:
    reply = await served.http.post("/v1/" + path, json=fields)
    assert reply.status_code == 400
    assert "has no chat template" in reply.json()["error"]["message"]


def test_refused_fields_have_rows_and_what_has_no_effect_is_taken() -> None:
    for body in (ChatBody, CompletionBody, ResponsesBody):
        fields = {each.name: each.type for each in msgspec.structs.fields(body)}
        for name, row in rows_of(body).items():
            assert (fields.get(name.split(".")[0]) is msgspec.Raw) == row.is_refused


@pytest.mark.parametrize(
    "body", (ChatBody, CompletionBody, ResponsesBody, MessagesBody, OllamaOptions)
)
def test_alternatives_are_fields_that_the_body_takes_or_addresses(body: type[Any]) -> None:
    taken = {
        each.encode_name for each in msgspec.structs.fields(body) if each.type is not msgspec.Raw
    }
    instead = {name: row.words for name, row in rows_of(body).items() if row.is_refused}
    named = [re.match(r"`(\w+)", words) for words in instead.values()]
    assert {each[1] for each in named if each} <= taken
    assert "num_beams" not in taken and instead["num_beams"] in (
        "`beam_width`" if "beam_width" in taken else "/v1/chat/completions"
    )


async def test_an_empty_conversation_is_refused_in_clear_words(served: Served) -> None:
    reply = await served.chat(messages=[])
    said = reply.json()["error"]["message"]
    assert said.startswith("`messages` must be a list of 1 to 4096 items")


BAD_BODIES = {
    "nothing": b"",
    "half an object": b'{"messages": [',
    "a list": b"[1, 2]",
    "a string": b'"hi"',
    "deep": b'{"x": ' + b"[" * 200_000,
    "deep and closed": b'{"messages": [], "x": ' + b"[" * 200_000 + b"]" * 200_000 + b"}",
    "deep in a refused field": b'{"messages": [], "tools": ' + b"[" * 200_000,
    "a lone surrogate": b'{"model": "\\ud800", "messages": []}',
    "bad UTF-8": b'{"model": "\xff\xfe", "messages": []}',
    "not a number": b'{"n": NaN, "messages": []}',
    "a null byte": b"\x00",
    "a form": b"model=x&messages=y",
    "many stops": json.dumps({"messages": HELLO, "stop": ["x"] * 150_000}).encode(),
}


@pytest.mark.parametrize("body", BAD_BODIES.values(), ids=BAD_BODIES.keys())
async def test_a_body_that_is_no_request_is_refused_at_once(served: Served, body: bytes) -> None:
    took, reply = await posted(served, body)
    assert reply.status_code == 400
    assert took < as_here(AT_ONCE_S)
    message = reply.json()["error"]["message"]
    assert "body" in message or "required" in message or "messages" in message


async def test_half_a_surrogate_pair_is_named_as_what_it_is(served: Served) -> None:
    _, reply = await posted(served, BAD_BODIES["a lone surrogate"])
    assert reply.json()["error"]["message"].startswith("The body holds half a surrogate pair (")


async def test_an_engine_refusal_is_a_400_before_and_instead_of_a_stream(served: Served) -> None:
    for stream in (True, False):
        reply = await served.chat("!refuse", stream=stream)
        assert reply.status_code == 400
        assert reply.json()["error"]["param"] == "messages"


async def test_an_engine_failure_is_a_500_or_the_last_event(served: Served) -> None:
    for trouble in ("!fail", "!break", "!silent"):
        reply = await served.chat(trouble)
        assert reply.status_code == 500
        assert "secret" not in reply.text
    served.engine.step_s = 0.005
    reply = await served.chat("!break", stream=True)
    served.engine.step_s = 0.0
    assert reply.status_code == 200
    last, done, rest = reply.text.split("\n\n")[-3:]
    assert json.loads(last.removeprefix("data: "))["error"]["type"] == "server_error"
    assert (done, rest) == ("data: [DONE]", "")
    assert "secret" not in reply.text


async def test_a_body_over_the_limit_is_refused_unread(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = msgspec.structs.replace(served.state.settings, body_max="1MiB")
    monkeypatch.setattr(served.state, "settings", small)
    stops = json.dumps({"messages": HELLO, "stop": ["x"] * 500_000}).encode()
    for body in (b" " * (4 * 2**20), stops):
        took, reply = await posted(served, body)
        assert reply.status_code == 413
        assert reply.json()["error"]["type"] == "request_too_large", "Anthropic's word"
        assert took < as_here(AT_ONCE_S)


async def test_one_id_may_be_used_twice_at_once(served: Served) -> None:
    headers = {"x-request-id": "twin"}
    body = {"messages": [{"role": "user", "content": "!slow"}], "max_tokens": 4}
    replies = await asyncio.gather(
        *(served.http.post("/v1/chat/completions", json=body, headers=headers) for _ in range(2))
    )
    assert [reply.status_code for reply in replies] == [200, 200]
