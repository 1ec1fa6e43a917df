"""What payloads mean, for every endpoint."""

import json

import pytest

from draftwerk_tools.loadtest.client.exchange import Exchange, Failure


def feed(exchange: Exchange, *events: object) -> Exchange:
    for at, event in enumerate(events):
        data = event if isinstance(event, bytes) else json.dumps(event).encode()
        exchange.receive(data, float(at))
    return exchange


def test_only_content_counts_as_a_chunk() -> None:
    exchange = feed(
        Exchange("chat"),
        {"choices": [{"delta": {"role": "assistant", "content": ""}}]},
        {"choices": [{"delta": {"content": None}}], "error": None, "usage": None},
        {"choices": [{"delta": {"content": "a"}}]},
        {"choices": [{"delta": {"reasoning_content": "b"}}]},
        {"choices": [{"delta": {"tool_calls": [{"index": 0}]}}]},
        {"choices": [{"delta": {}, "finish_reason": "stop"}]},
    )
    assert exchange.chunk_times == [2.0, 3.0, 4.0]
    assert exchange.text == "ab"
    assert exchange.finish_reason == "stop"


def test_extras_of_another_shape_are_ignored() -> None:
    exchange = feed(
        Exchange("chat"),
        {"choices": [{"delta": {"content": "a"}}], "metrics": "fast", "timings": [1]},
    )
    assert exchange.times is None and exchange.timings is None


def test_the_timings_of_llama_cpp_are_read() -> None:
    timings = {"cache_n": 5, "draft_n": 8, "draft_n_accepted": 6, "predicted_ms": 1.5}
    exchange = feed(Exchange("chat"), {"choices": [], "timings": timings})
    assert exchange.timings is not None and exchange.timings.draft_n_accepted == 6


def test_beams_are_many_choices_of_which_the_first_is_the_text() -> None:
    choices = [{"index": n, "delta": {"content": f"beam {n}"}} for n in range(3)]
    exchange = feed(Exchange("chat"), {"choices": choices})
    assert exchange.text == "beam 0"
    assert len(exchange.chunk_times) == 1


def test_a_whole_response_is_read() -> None:
    exchange = Exchange("responses", whole=True)
    output = [{"type": "message", "content": [{"type": "output_text", "text": "hi"}]}]
    usage = {"input_tokens": 3, "output_tokens": 1, "input_tokens_details": {"cached_tokens": 2}}
    feed(exchange, {"status": "completed", "output": output, "usage": usage, "error": None})
    exchange.finish()
    assert exchange.text == "hi" and exchange.finish_reason == "stop"
    assert exchange.usage is not None and exchange.usage.cached == 2


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "error": {"message": "bad"}},
        {"type": "response.failed", "response": {"error": {"message": "bad"}}},
    ],
)
def test_failed_responses_carry_the_reason(event: object) -> None:
    with pytest.raises(Failure) as caught:
        feed(Exchange("responses"), event)
    assert caught.value.kind == "error event" and "bad" in caught.value.detail


def test_an_incomplete_response_ran_into_its_limit() -> None:
    done = {"type": "response.incomplete", "response": {"status": "incomplete"}}
    exchange = feed(Exchange("responses"), {"type": "x.delta", "delta": "a"}, done)
    exchange.finish()
    assert exchange.finish_reason == "length"


def test_what_is_not_json_is_a_protocol_failure() -> None:
    with pytest.raises(Failure) as caught:
        feed(Exchange("chat"), b"<html>")
    assert caught.value.kind == "protocol"


def test_an_answer_without_content_is_empty() -> None:
    exchange = feed(Exchange("chat"), {"choices": [{"delta": {}, "finish_reason": "stop"}]})
    with pytest.raises(Failure) as caught:
        exchange.finish()
    assert caught.value.kind == "empty"
