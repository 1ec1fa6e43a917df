"""`/v1/chat/completions` over a real socket."""

import asyncio
import json
from typing import Any

import openai
import pytest

from draftwerk.speculative.requests.client_prompts import Chat, ChatMessage
from tests.api.conftest import HELLO, MODEL, Served, serving
from tests.api.support.fake_engine import FakeEngine, whole_text


def events(text: str) -> list[Any]:
    """Return the JSON of every event of a finished stream; checks the end."""
    assert text.endswith("data: [DONE]\n\n")
    parts = text.split("\n\n")[:-2]
    assert all(part.startswith("data: ") for part in parts)
    return [json.loads(part.removeprefix("data: ")) for part in parts]


def expected(served: Served, choice: int = 0) -> str:
    prompt, options = served.engine.submitted[-1]
    return whole_text(prompt, options, choice)


async def test_a_reply_holds_text_usage_and_metrics(served: Served) -> None:
    reply = (await served.chat(seed=7)).json()
    assert reply["object"] == "chat.completion"
    assert reply["model"] == MODEL
    choice = reply["choices"][0]
    assert choice["message"] == {
        "role": "assistant",
        "content": expected(served),
        "refusal": None,
    }
    assert choice["finish_reason"] == "stop"
    usage = reply["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens"] == len("user: Hello\n")


async def test_speculation_metrics_add_up_as_load_tools_check(served: Served) -> None:
    reply = (await served.chat(seed=7, n=2)).json()
    metrics = reply["metrics"]["speculative_decoding"]
    histogram = metrics["acceptance_histogram"]
    accepted = sum(place * count for place, count in enumerate(histogram))
    assert metrics["num_spec_steps"] == sum(histogram)
    assert metrics["num_accepted_draft_tokens"] == accepted
    assert metrics["num_spec_tokens"] == len(histogram) - 1
    assert metrics["mean_acceptance_length"] == pytest.approx(1 + accepted / sum(histogram))
    assert metrics["num_draft_tokens"] >= accepted
    assert set(reply["metrics"]) >= {"time_to_first_token_ms", "queue_time_ms", "mean_itl_ms"}


async def test_a_stream_is_byte_exact(served: Served) -> None:
    served.state.now = lambda: 1234.5
    reply = await served.http.post(
        "/v1/chat/completions",
        json={"messages": HELLO, "stream": True, "max_tokens": 1, "temperature": 0, "seed": 0},
        headers={"x-request-id": "abc"},
    )
    text = json.dumps(expected(served), ensure_ascii=False)
    start = (
        'data: {"id":"chatcmpl-abc","object":"chat.completion.chunk","created":1234,'
        '"model":"fake-model","choices":[{"index":0,"delta":{'
    )
    end = ',"system_fingerprint":""}\n\n'
    assert reply.text == (
        f'{start}"role":"assistant","content":{text}}},"logprobs":null,"finish_reason":null}}]{end}'
        f'{start}}},"logprobs":null,"finish_reason":"length"}}]{end}'
        "data: [DONE]\n\n"
    )
    assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert reply.headers["cache-control"] == "no-cache, no-transform"
    assert reply.headers["x-accel-buffering"] == "no"
    assert reply.headers["x-request-id"] == "abc"


async def test_usage_comes_only_when_asked_for_and_last(served: Served) -> None:
    plain = events((await served.chat(stream=True, seed=1)).text)
    assert not any("usage" in event for event in plain)
    asked = events(
        (await served.chat(stream=True, seed=1, stream_options={"include_usage": True})).text
    )
    assert [event["usage"] for event in asked[:-1]] == [None] * (len(asked) - 1)
    assert asked[-1]["choices"] == []
    assert asked[-1]["usage"]["completion_tokens"] > 0
    assert asked[-1]["metrics"]["speculative_decoding"]["num_spec_steps"] > 0


async def test_continuous_usage_counts_up_on_every_chunk() -> None:
    async with serving(FakeEngine(step_s=0.003)) as served:
        wanted = {"continuous_usage_stats": True}
        found = events((await served.chat(stream=True, seed=1, stream_options=wanted)).text)
    counts = [event["usage"]["completion_tokens"] for event in found]
    assert counts == sorted(counts)
    assert counts[0] > 0
    assert {event["usage"]["prompt_tokens"] for event in found} == {len("user: Hello\n")}


async def test_usage_that_is_turned_off_is_on_no_chunk(served: Served) -> None:
    wanted = {"continuous_usage_stats": True, "include_usage": False}
    found = events((await served.chat(stream=True, seed=1, stream_options=wanted)).text)
    assert {event.get("usage") for event in found} == {None}


async def test_prediction_tokens_are_reported_when_a_prediction_was_given(served: Served) -> None:
    reply = (await served.chat(prediction={"type": "content", "content": "twelve chars"})).json()
    details = reply["usage"]["completion_tokens_details"]
    assert details == {"accepted_prediction_tokens": 6, "rejected_prediction_tokens": 6}
    assert served.options.speculation.prediction == "twelve chars"


async def test_every_field_reaches_the_engine(served: Served) -> None:
    await served.chat(
        temperature=0.5,
        top_p=0.9,
        top_k=40,
        min_p=0.1,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        repetition_penalty=1.1,
        logit_bias={"5": -100, "3": 1.5},
        seed=-1,
        stop=["a", "b"],
        n=3,
        min_tokens=2,
        max_completion_tokens=9,
        ignore_eos=True,
        cache_salt="salt",
        priority=3,
        logprobs=True,
        top_logprobs=4,
        speculation={"enabled": True, "methods": ["ngram"], "draft_max": 3},
    )
    options = served.options
    sampling = options.sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k) == (0.5, 0.9, 40)
    assert (sampling.min_p, sampling.repetition_penalty) == (0.1, 1.1)
    assert (sampling.presence_penalty, sampling.frequency_penalty) == (0.5, -0.5)
    assert sampling.logit_bias == ((3, 1.5), (5, -100.0))
    assert (sampling.seed, sampling.tokens_min, sampling.logprobs) == (2**64 - 1, 2, 4)
    assert (options.stop, options.choices, options.tokens_max) == (("a", "b"), 3, 9)
    assert (options.ignore_eos, options.cache_salt, options.priority) == (True, "salt", 3)
    assert options.speculation.methods == ("ngram",)
    assert options.speculation.draft_max == 3


async def test_the_seed_that_was_chosen_gives_the_same_text_again(served: Served) -> None:
    first = (await served.chat()).json()
    again = (await served.chat(seed=first["metrics"]["seed"])).json()
    assert again["choices"] == first["choices"]
    negative = (await served.chat(seed=-5)).json()
    assert negative["metrics"]["seed"] == -5


async def test_nulls_mean_absent_and_unknown_fields_are_ignored(served: Served) -> None:
    fields = ("temperature", "top_p", "n", "stop", "seed", "logit_bias", "tools", "max_tokens")
    reply = await served.chat(**dict.fromkeys(fields), mood={"a": "b"}, surprise=[1, [2]])
    assert reply.status_code == 200
    options = served.options
    assert options.sampling.temperature == 1.0
    assert options.tokens_max is None


async def test_contents_may_be_parts_and_developers_are_systems(served: Served) -> None:
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "c"},
    ]
    await served.http.post("/v1/chat/completions", json={"messages": messages})
    prompt, _ = served.engine.submitted[-1]
    assert prompt == Chat(
        (
            ChatMessage("system", "Be brief."),
            ChatMessage("user", "ab", parts=(1, 2)),
            ChatMessage("assistant", ""),
            ChatMessage("user", "c"),
        )
    )


async def test_logprobs_come_per_token_with_bytes(served: Served) -> None:
    reply = (await served.chat(logprobs=True, top_logprobs=2, max_tokens=6, seed=2)).json()
    content = reply["choices"][0]["logprobs"]["content"]
    joined = b"".join(bytes(each["bytes"]) for each in content)
    assert joined.decode(errors="replace") == reply["choices"][0]["message"]["content"]
    assert [len(each["top_logprobs"]) for each in content] == [2] * 6


async def test_origins_come_per_token_when_asked_for(served: Served) -> None:
    asked = await served.chat(include=["token_origins"], max_tokens=6, seed=2)
    assert len(asked.json()["choices"][0]["origins"]) == 6
    plain = await served.chat(max_tokens=6, seed=2)
    assert "origins" not in plain.json()["choices"][0]
    streamed = events((await served.chat(include=["token_origins"], stream=True, seed=2)).text)
    assert any("ngram" in event["choices"][0].get("origins", ()) for event in streamed)


async def test_the_stock_client_chats_streams_and_lists_models(served: Served) -> None:
    reply = await served.openai.chat.completions.create(
        model=MODEL, messages=HELLO, seed=3, n=2, logprobs=True, top_logprobs=1
    )
    assert reply.choices[0].message.content == expected(served)
    assert reply.usage and reply.usage.prompt_tokens_details
    stream = await served.openai.chat.completions.create(
        model=MODEL, messages=HELLO, seed=3, stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == reply.choices[0].message.content
    assert chunks[-1].usage
    assert [model.id async for model in served.openai.models.list()] == [MODEL]
    assert (await served.openai.models.retrieve(MODEL)).id == MODEL


async def test_the_stock_client_sees_errors_of_its_own_kinds(served: Served) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        await served.openai.chat.completions.create(model="gpt-9", messages=HELLO)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as bad:
        await served.openai.chat.completions.create(model=MODEL, messages=HELLO, temperature=9)
    assert bad.value.param == "temperature"


async def test_the_stock_client_waits_out_an_overload(served: Served) -> None:
    served.engine.requests_max = 0
    reply = await served.chat()
    assert reply.status_code == 503
    assert reply.headers["retry-after-ms"] == "1500"
    assert reply.headers["retry-after"] == "2"
    patient = served.openai.with_options(max_retries=1)
    waiting = patient.chat.completions.create(model=MODEL, messages=HELLO, seed=1)

    async def make_room() -> None:
        await asyncio.sleep(0.3)
        served.engine.requests_max = 10

    answer, _ = await asyncio.gather(waiting, make_room())
    assert answer.choices[0].message.content
