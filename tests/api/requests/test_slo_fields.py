"""What a request says of its times: taken in any protocol, refused by name, and kept or told."""

import asyncio
import json
from time import monotonic
from typing import Any

import pytest

from draftwerk.api.shared.errors import ApiError
from draftwerk.speculative.requests.slo import Slo
from tests.api.conftest import HELLO, MODEL, Served, serving
from tests.api.support.fake_engine import FakeEngine, whole_text
from tests.api.support.sockets import ask, last_word, socket, until_last
from tests.support.waiting import until

FIELDS: dict[str, Any] = {"slo": {"ttft": "500ms", "tpot": 0.05}, "deadline": "60s"}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"slo": "ttft=1s"}, "slo"),
    ({"slo": {"ttft": "soon"}}, "slo.ttft"),
    ({"slo": {"ttft": "0s"}}, "slo.ttft"),
    ({"slo": {"ttft": 0}}, "slo.ttft"),
    ({"slo": {"tpot": "2h"}}, "slo.tpot"),
    ({"slo": {"tpot": -1}}, "slo.tpot"),
    ({"slo": {"tpot": "90000s"}}, "slo.tpot"),
    ({"deadline": "tomorrow"}, "deadline"),
    ({"deadline": ""}, "deadline"),
    ({"deadline": 1e6}, "deadline"),
    ({"deadline": ["1s"]}, "deadline"),
]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {"messages": HELLO}),
        ("completions", {"prompt": "Hello"}),
        ("responses", {"input": "Hello"}),
    ],
)
async def test_the_fields_come_to_the_engine(
    served: Served, path: str, body: dict[str, Any]
) -> None:
    begun = monotonic()
    reply = await served.http.post(f"/v1/{path}", json={"model": MODEL, **body, **FIELDS})
    assert reply.status_code == 200
    options = served.options
    assert options.slo == Slo(ttft=0.5, tpot=0.05)
    assert options.deadline_s == 60.0
    assert 0.0 <= options.waited_s <= monotonic() - begun


async def test_the_fields_come_over_a_socket(served: Served) -> None:
    async with socket(served) as ws:
        assert (await last_word(ws, "Hello", **FIELDS))["type"] == "response.completed"
    options = served.options
    assert (options.slo, options.deadline_s) == (Slo(ttft=0.5, tpot=0.05), 60.0)


async def test_without_them_nothing_is_said_of_times(served: Served) -> None:
    await served.chat(slo=None, deadline=None)
    options = served.options
    assert (options.slo, options.deadline_s, options.waited_s) == (None, 0.0, 0.0)


@pytest.mark.parametrize(("fields", "field"), WRONG, ids=str)
async def test_a_time_that_is_none_is_refused_by_name(
    served: Served, fields: dict[str, Any], field: str
) -> None:
    for reply in (await served.chat(**fields), await served.complete(**fields)):
        error = reply.json()["error"]
        assert (reply.status_code, error["param"], error["code"]) == (400, field, "invalid")
        assert f"`{field}` must be" in error["message"]


async def test_a_promise_of_another_kind_is_refused_by_name(served: Served) -> None:
    reply = await served.chat(slo={"e2e": "1s"})
    error = reply.json()["error"]
    assert (reply.status_code, error["param"], error["code"]) == (400, "slo.e2e", "unsupported")


async def test_a_deadline_is_of_one_prompt(served: Served) -> None:
    refused = await served.complete(["a", "b"], deadline="60s")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "deadline")
    assert (await served.complete(["a"], deadline="60s")).status_code == 200
    assert (await served.complete(["a", "b"], slo=FIELDS["slo"])).status_code == 200
    assert served.options.slo == Slo(tpot=0.05), "one of several is not refused for its time"


async def test_a_request_overrides_what_the_server_promises() -> None:
    async with serving(FakeEngine(), slo=["ttft=1s", "tpot=20ms"]) as served:
        await served.chat()
        await served.chat(slo={"tpot": "30ms"})
        found = [options.slo for _, options in served.engine.submitted]
        assert found == [Slo(ttft=1.0, tpot=0.02), Slo(ttft=1.0, tpot=0.03)]


NOT_MET: list[tuple[str, int, dict[str, str], dict[str, str]]] = [
    (
        "!expire",
        504,
        {"code": "deadline_exceeded", "param": "deadline", "type": "timeout_error"},
        {"x-should-retry": "false"},
    ),
    ("!unmet", 503, {"code": "slo_unmet"}, {"retry-after": "3", "retry-after-ms": "2500"}),
    (
        "!away",
        503,
        {"code": "unavailable", "message": "Away."},
        {"retry-after": "1", "retry-after-ms": "1"},
    ),
]
"""A deadline that passed, a promise out of reach, and what is away for a moment."""


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("text", "status", "said", "headers"), NOT_MET)
async def test_what_is_not_met_has_a_status_and_a_time(
    served: Served,
    text: str,
    status: int,
    said: dict[str, str],
    headers: dict[str, str],
    stream: bool,
) -> None:
    reply = await served.chat(text, stream=stream, **FIELDS)
    assert reply.status_code == status
    assert said.items() <= reply.json()["error"].items()
    assert headers.items() <= reply.headers.items()


async def test_over_a_socket_both_end_the_response(served: Served) -> None:
    async with socket(served) as ws:
        for text, code in (("!expire", "deadline_exceeded"), ("!unmet", "slo_unmet")):
            last = await last_word(ws, text, deadline="1s")
            assert (last["type"], last["response"]["error"]["code"]) == ("response.failed", code)
        assert (await last_word(ws, "Hello"))["type"] == "response.completed"


async def test_what_became_of_promises_is_counted() -> None:
    async with serving(FakeEngine(step_s=0.02)) as served:
        await served.chat("Hello", seed=1)
        await served.chat("Hello", seed=1, slo={"ttft": "60s"})
        await served.chat("Hello", seed=1, slo={"ttft": "1ms"})
        await served.chat("!expire", deadline="1s")
        await served.chat("!unmet", slo={"ttft": "1s"})
        found = served.state.slo_outcomes
        assert found == {"kept": 1, "broken": 1, "expired": 1, "refused": 1}
        text = (await served.http.get("/metrics")).text
        assert 'slo_requests_total{model_name="fake-model",promise="refused"} 1.0' in text
        assert '_requests_total{model_name="fake-model",outcome="deadline_exceeded"} 1.0' in text


async def test_a_deadline_ends_the_wait_for_a_place() -> None:
    async with serving(FakeEngine(), requests_max=1) as served:
        first = asyncio.create_task(served.chat("!held"))
        await until(lambda: served.engine.live == 1)
        reply = await served.chat("Hello", deadline="100ms")
        assert (reply.status_code, reply.json()["error"]["code"]) == (504, "deadline_exceeded")
        assert served.state.admission.waiting == 0
        second = asyncio.create_task(served.chat("Hello", deadline="60s", seed=3))
        await until(lambda: served.state.admission.waiting == 1)
        served.engine.released.set()
        assert (await first).status_code == 200
        answer = await second
        prompt, options = served.engine.submitted[-1]
        assert answer.json()["choices"][0]["message"]["content"] == whole_text(prompt, options)
        assert options.waited_s > 0.0, "what it waited counts"


async def test_a_queue_that_breaks_a_promise_refuses_if_that_is_the_policy() -> None:
    async with serving(FakeEngine(), requests_max=1, slo_policy="refuse") as served:
        admission = served.state.admission
        now = served.state.clock()
        admission.clock = lambda: now
        for seconds in (0.0, 3.0):  # places become free every few seconds
            admission.leaves.append((now - 6.0 + seconds, 1))
        first = asyncio.create_task(served.chat("!held"))
        await until(lambda: served.engine.live == 1)
        reply = await served.chat("Hello", slo={"ttft": "500ms"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (503, "slo_unmet")
        assert 1000 < int(reply.headers["retry-after-ms"]) < 4000
        patient = asyncio.create_task(served.chat("Hello", slo={"ttft": "60s"}))
        await until(lambda: admission.waiting == 1)
        served.engine.released.set()
        assert [each.status_code for each in await asyncio.gather(first, patient)] == [200, 200]


async def test_a_stream_that_ends_so_has_no_text(served: Served) -> None:
    async with socket(served) as ws:
        await ask(ws, "!expire", deadline="1s")
        events = await until_last(ws)
    assert not any("delta" in json.dumps(event["type"]) for event in events)


def test_an_error_of_time_is_no_refusal() -> None:
    assert ApiError(504, "late", code="deadline_exceeded").reply.error.type == "timeout_error"
