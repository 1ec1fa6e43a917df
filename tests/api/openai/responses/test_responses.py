"""`POST /v1/responses`: the same words as over the socket, by one request."""

from typing import Any

import openai
import pytest

from draftwerk.speculative.requests.client_prompts import Chat, ChatMessage
from tests.api.conftest import MODEL, Served
from tests.api.support.fake_engine import whole_text

OPENING = [
    "response.created",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
]
ENDING = [
    "response.output_text.done",
    "response.content_part.done",
    "response.output_item.done",
]


def expected(served: Served) -> str:
    prompt, options = served.engine.submitted[-1]
    return whole_text(prompt, options)


async def test_the_stock_client_gets_a_response(served: Served) -> None:
    response = await served.openai.responses.create(
        model=MODEL, input="Hello", instructions="Be brief.", metadata={"a": "b"}
    )
    assert response.output_text == expected(served)
    assert response.status == "completed"
    assert response.usage
    assert response.usage.total_tokens == response.usage.input_tokens + response.usage.output_tokens
    assert response.metadata == {"a": "b"}
    prompt, _ = served.engine.submitted[-1]
    assert prompt == Chat((ChatMessage("system", "Be brief."), ChatMessage("user", "Hello")))


async def test_the_stock_client_streams_every_event_in_order(served: Served) -> None:
    stream = await served.openai.responses.create(model=MODEL, input="Hello", stream=True)
    events: list[Any] = [event async for event in stream]
    types = [event.type for event in events]
    deltas = [event for event in events if event.type == "response.output_text.delta"]
    middle = ["response.output_text.delta"] * len(deltas)
    assert types == [*OPENING, *middle, *ENDING, "response.completed"]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = expected(served)
    assert "".join(event.delta for event in deltas) == text
    assert events[-4].text == text
    assert events[-1].response.output_text == text
    assert {event.item_id for event in deltas} == {events[2].item.id}
    assert events[-1].response.model_extra["metrics"]["seed"] > 0


async def test_a_limit_makes_it_incomplete(served: Served) -> None:
    response = await served.openai.responses.create(
        model=MODEL, input="Hello", max_output_tokens=3, temperature=0
    )
    assert response.status == "incomplete"
    assert response.incomplete_details
    assert response.incomplete_details.reason == "max_output_tokens"
    assert response.usage
    assert response.usage.output_tokens == 3


async def test_logprobs_and_origins_come_when_included(served: Served) -> None:
    include: Any = ["message.output_text.logprobs", "token_origins"]
    response = await served.openai.responses.create(
        model=MODEL, input="Hello", include=include, top_logprobs=2, max_output_tokens=5
    )
    (part,) = response.output[0].content  # type: ignore[union-attr]
    assert response.usage is not None
    count = response.usage.output_tokens
    assert count >= 1
    assert [len(each.top_logprobs) for each in part.logprobs] == [2] * count  # type: ignore[union-attr]
    assert len(part.model_extra["origins"]) == count  # type: ignore[index]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0].id"),
        ({"input": [{"type": "odd_call"}]}, "input[0].type"),
        ({"input": "x", "tools": [{"type": "odd"}]}, "tools[0].type"),
        ({"input": [{"type": "function_call", "call_id": "a", "arguments": ""}]}, "input[0].name"),
        ({"input": [{"type": "function_call_output", "call_id": "a", "output": ""}]}, "input[0]"),
        ({"input": [{"type": "message", "content": "x"}]}, "input[0].role"),
        ({"input": "x", "text": {"format": {"type": "html"}}}, "text.format.type"),
        ({"input": "x", "truncation": "first"}, "truncation"),
        ({"input": "x", "text": {"verbosity": "none"}}, "text.verbosity"),
        ({"input": "x", "reasoning": {"effort": "extreme"}}, "reasoning.effort"),
        ({"input": "x", "n": 10**9}, "n"),
        ({"input": "x", "max_tokens": 5}, "max_tokens"),
        ({"input": "x", "response_format": {"type": "json_object"}}, "response_format"),
        ({"input": "x", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": "x", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "x", "top_logprobs": 3}, "top_logprobs"),
        ({"input": "x", "include": ["odd.results"]}, "include"),
        ({"input": "!refuse"}, "input"),
    ],
)
async def test_what_cannot_be_obeyed_is_refused_by_name(
    served: Served, fields: dict[str, object], param: str
) -> None:
    for stream in (False, True):
        reply = await served.http.post("/v1/responses", json={"stream": stream, **fields})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


async def test_a_failure_on_the_way_ends_the_response(served: Served) -> None:
    served.engine.step_s = 0.005
    stream = await served.openai.responses.create(model=MODEL, input="!fail", stream=True)
    events: list[Any] = [event async for event in stream]
    served.engine.step_s = 0.0
    assert events[-1].type == "response.failed"
    assert events[-1].response.error.code == "server_error"
    with pytest.raises(openai.InternalServerError):
        await served.openai.responses.create(model=MODEL, input="!fail")


async def test_documents_stand_before_the_question_and_usage_tells_of_them(served: Served) -> None:
    reply = await served.http.post(
        "/v1/responses", json={"input": "Why?", "documents": ["One."], "blend": True}
    )
    assert reply.status_code == 200
    prompt, options = served.engine.submitted[-1]
    assert prompt == Chat((ChatMessage("user", "One.\n\nWhy?", segments=((0, 4),)),))
    assert options.blend is not None and options.blend.rule == "hkvd"
    details = reply.json()["usage"]["input_tokens_details"]
    told = [details[name] for name in ("blended_tokens", "recomputed_share", "approximate")]
    assert told == [48, 0.4, True]
