"""`/v1/responses` over a WebSocket: the stock client, and raw frames."""

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from draftwerk.api.app.app import create_app
from draftwerk.api.http import abortable_websocket
from draftwerk.api.http.startup import StartupApp
from draftwerk.api.openai.responses.responses_socket import REFUSALS_MAX
from draftwerk.speculative.requests.client_prompts import Chat
from tests.api.conftest import MODEL, Served, serving, settings
from tests.api.openai.responses.test_responses import ENDING, OPENING
from tests.api.support.fake_engine import FakeEngine, whole_text
from tests.api.support.sockets import LAST_WORDS, ask, last_word, socket, until_last
from tests.support.waiting import DEADLINE_S, until

GATE = "/"
"""Where no engine is there yet."""


async def closed_with(ws: ClientConnection) -> int | None:
    """Read until the socket closes; returns the code."""
    with pytest.raises(ConnectionClosed):
        async with asyncio.timeout(DEADLINE_S):
            while True:
                await ws.recv()
    return ws.close_code


async def test_the_stock_client_gets_a_response(served: Served) -> None:
    async with served.openai.responses.connect() as connection:
        await connection.send({"type": "response.create", "model": MODEL, "input": "Hello"})
        events: list[Any] = []
        async for event in connection:
            events.append(event)
            if event.type == "response.completed":
                break
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    types = [event.type for event in events if event.type != "response.output_text.delta"]
    assert types == [*OPENING, *ENDING, "response.completed"]
    prompt, options = served.engine.submitted[-1]
    assert "".join(deltas) == whole_text(prompt, options) == events[-1].response.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))


async def test_the_stock_client_runs_lanes_and_cancels(served: Served) -> None:
    wanted: dict[str, Any] = {"type": "response.create", "model": MODEL}
    async with served.openai.responses.connect() as connection:
        await connection.send({**wanted, "input": "!hang", "stream_id": "a"})  # type: ignore[arg-type]
        await connection.send({**wanted, "input": "Hello", "stream_id": "b"})  # type: ignore[arg-type]
        ends: list[Any] = []
        async for event in connection:
            if event.type == "response.completed":
                cancel: Any = {"type": "response.cancel", "stream_id": "a"}
                await connection.send(cancel)
            ends += [event] if event.type in LAST_WORDS else []
            if len(ends) == 2:
                break
    assert [end.stream_id for end in ends] == ["b", "a"]
    assert [end.response.status for end in ends] == ["completed", "cancelled"]
    prompt, options = served.engine.submitted[-1]
    assert ends[0].response.output_text == whole_text(prompt, options)
    await until(lambda: served.engine.live == 0)


async def test_the_stock_client_sees_errors_over_a_socket(served: Served) -> None:
    async with served.openai.responses.connect() as connection:
        await connection.send({"type": "response.create", "model": "gpt-9", "input": "Hello"})
        event = await anext(aiter(connection))
    assert (event.type, event.to_dict()["error"]["code"]) == ("error", "model_not_found")


async def test_a_cancel_right_behind_its_response_is_not_lost(served: Served) -> None:
    async with socket(served) as ws:
        for stream in ("a", None):
            name = {} if stream is None else {"stream_id": stream}
            await ask(ws, "!slow", **name)
            await ws.send(json.dumps({"type": "response.cancel", **name}))
            events = await until_last(ws)
            assert [event["type"] for event in events[:4]] == OPENING
            assert events[-1]["type"] == "response.incomplete"
            assert events[-1]["response"]["status"] == "cancelled"
            assert (await last_word(ws, "Hello", **name))["type"] == "response.completed"
    assert served.state.outcomes["cancelled"] == 2


async def test_a_socket_refuses_not_to_stream(served: Served) -> None:
    async with socket(served) as ws:
        await ask(ws, "Hello", stream=False, stream_id="a")
        (event,) = await until_last(ws)
        assert (event["status"], event["error"]["param"]) == (400, "stream")
        assert event["stream_id"] == "a"
        assert (await last_word(ws, "Hello", stream=True))["type"] == "response.completed"


async def test_lanes_run_side_by_side_and_each_in_order() -> None:
    async with serving(FakeEngine(step_s=0.01)) as served, socket(served) as ws:
        for turn in range(2):
            for stream in "abc":
                await ask(ws, f"{stream} {turn}", stream_id=stream)
        events = [json.loads(await ws.recv())]
        while sum(event["type"] == "response.completed" for event in events) < 6:
            events.append(json.loads(await ws.recv()))
        streams = [event["stream_id"] for event in events]
        assert len({streams[i : i + 3] == ["a", "b", "c"] for i in range(len(streams))}) > 0
        for stream in "abc":
            mine = [event for event in events if event["stream_id"] == stream]
            marks = [
                event["type"] for event in mine if event["type"] in (OPENING[0], LAST_WORDS[0])
            ]
            assert marks == [OPENING[0], LAST_WORDS[0]] * 2
        first = {stream: streams.index(stream) for stream in "abc"}
        ends = [i for i, event in enumerate(events) if event["type"] == "response.completed"]
        assert max(first.values()) < ends[0]


async def test_a_lane_is_cancelled_by_its_response(served: Served) -> None:
    async with socket(served) as ws:
        await ask(ws, "!slow")
        identity = json.loads(await ws.recv())["response"]["id"]
        await until(lambda: served.engine.live == 1)
        await ws.send(json.dumps({"type": "response.cancel", "response_id": identity}))
        last = (await until_last(ws))[-1]
        assert last["type"] == "response.incomplete"
        assert (last["response"]["id"], last["response"]["status"]) == (identity, "cancelled")
    await until(lambda: served.engine.live == 0)


async def test_a_response_may_be_cancelled_while_it_waits_for_admission() -> None:
    async with serving(FakeEngine(), requests_max=1) as served, socket(served) as ws:
        await ask(ws, "!hang", stream_id="a")
        await until(lambda: served.engine.live == 1)
        await ask(ws, "hello", stream_id="b")
        await until(lambda: served.state.admission.waiting == 1)
        await ws.send(json.dumps({"type": "response.cancel", "stream_id": "b"}))
        events = await until_last(ws)
        assert events[-1]["stream_id"] == "b"
        assert events[-1]["response"]["status"] == "cancelled"
        assert served.state.admission.waiting == 0
        assert served.engine.entered == 1


async def test_the_best_hypothesis_so_far_comes_when_asked_for(served: Served) -> None:
    async with socket(served) as ws:
        await ask(ws, "Hello", beam_width=2, include=["beam_hypotheses"])
        events = await until_last(ws)
        received = [each for each in events if each["type"] == "response.output_text.hypothesis"]
        assert received and {each["text"] for each in received} == {"perhaps"}
        assert [each["sequence_number"] for each in events] == list(range(len(events)))
        await ask(ws, "Hello", beam_width=2)
        assert not [each for each in await until_last(ws) if "hypothesis" in each["type"]]
        refused = await last_word(ws, "Hello", include=["beam_hypotheses"])
        assert refused["error"]["param"] == "include"


async def test_documents_are_of_one_response_alone(served: Served) -> None:
    async with socket(served) as ws:
        first = await last_word(ws, "Hello", documents=["A passage."], blend=True)
        await last_word(ws, "And then?", previous_response_id=first["response"]["id"])
    prompt, options = served.engine.submitted[-1]
    assert isinstance(prompt, Chat) and options.blend is None
    assert prompt.messages[0].content == "Hello"
    assert not any(turn.segments for turn in prompt.messages)


BAD_EVENTS: list[tuple[Any, str | None]] = [
    ({"type": "response.dance"}, "type"),
    ({"no": "type"}, "type"),
    ({"type": 5}, "type"),
    ([1, 2], None),
    ("text", None),
    ({"type": "response.create"}, "input"),
    ({"type": "response.create", "input": "x", "temperature": 9}, "temperature"),
    ({"type": "response.create", "input": "x", "model": "gpt-9"}, "model"),
    ({"type": "response.create", "input": "x", "stream_id": ""}, "stream_id"),
    ({"type": "response.cancel"}, None),
    ({"type": "response.cancel", "response_id": "resp_9"}, None),
]


async def test_a_bad_event_is_answered_and_never_closes(served: Served) -> None:
    async with socket(served) as ws:
        for event, param in BAD_EVENTS:
            await ws.send(json.dumps(event))
            answer = json.loads(await ws.recv())
            assert answer["type"] == "error", event
            assert 400 <= answer["status"] < 500
            assert answer["error"]["param"] == param, event
        await ws.send('{"type": "response.create", "x": ' + "[" * 200_000)
        assert json.loads(await ws.recv())["type"] == "error"
        assert (await last_word(ws, "Hello"))["type"] == "response.completed"


async def test_too_many_lanes_and_too_long_lanes_are_refused(served: Served) -> None:
    async with socket(served) as ws:
        for stream in range(9):
            await ask(ws, "!hang", stream_id=str(stream))
        error = (await until_last(ws))[-1]
        assert (error["status"], error["error"]["code"]) == (429, "too_many_lanes")
        for _ in range(17):
            await ask(ws, "x", stream_id="1")
        error = (await until_last(ws))[-1]
        assert (error["status"], error["error"]["code"]) == (429, "lane_full")
        await until(lambda: served.engine.live == 8)
    await until(lambda: served.engine.live == 0)


async def test_leaving_cancels_every_lane(served: Served) -> None:
    before = len(asyncio.all_tasks())
    for abrupt in (False, True):
        async with socket(served) as ws:
            for stream in "abc":
                await ask(ws, "!hang", stream_id=stream)
            await until(lambda: served.engine.live == 3)
            if abrupt:
                ws.transport.abort()
        await until(lambda: served.engine.live == 0)
    await until(lambda: len(asyncio.all_tasks()) <= before and not served.state.sockets.total())


async def test_an_idle_socket_closes_and_a_busy_one_does_not() -> None:
    async with serving(FakeEngine(), socket_idle_s=0.2) as served:
        async with socket(served) as ws:
            assert await closed_with(ws) == 1001
        async with await busy_socket(served) as ws:
            await asyncio.sleep(0.4)
            served.engine.released.set()
            assert (await until_last(ws))[-1]["type"] == "response.completed"


async def busy_socket(served: Served) -> ClientConnection:
    """Return a socket with a response under way, though the server closes it soon while idle."""
    while True:
        ws = await socket(served)
        try:
            await ask(ws, "!held")
            assert json.loads(await ws.recv())["type"] == OPENING[0]
        except ConnectionClosed as closed:  # the machine was slower than the server's patience
            assert closed.rcvd is not None and closed.rcvd.code == 1001
        else:
            return ws


async def test_draining_lets_lanes_end_and_then_closes() -> None:
    async with (
        serving(FakeEngine(step_s=0.02)) as served,
        socket(served) as idle,
        socket(served) as busy,
    ):
        await ask(busy, "!held")
        await until(lambda: served.engine.live == 1)
        served.state.leaving.set()
        assert await closed_with(idle) == 1012
        await ask(busy, "late", stream_id="late")
        events = await until_last(busy)
        assert (events[-1]["type"], events[-1]["status"]) == ("error", 503)
        served.engine.released.set()
        assert (await until_last(busy))[-1]["type"] == "response.completed"
        assert await closed_with(busy) == 1012
        with pytest.raises(InvalidStatus) as refusal:
            async with socket(served):
                pass
        assert refusal.value.response.status_code == 503


async def test_a_full_server_refuses_before_the_handshake_ends() -> None:
    async with (
        serving(FakeEngine(), requests_max=1, queue_max=0) as served,
        socket(served) as ws,
    ):
        await ask(ws, "!hang")
        await until(lambda: served.engine.live == 1)
        with pytest.raises(InvalidStatus) as refusal:
            async with socket(served):
                pass
        assert refusal.value.response.status_code == 503
        assert refusal.value.response.headers["retry-after-ms"]


async def test_a_full_server_sends_the_time_to_retry_and_at_last_closes() -> None:
    async with (
        serving(FakeEngine(), requests_max=1, queue_max=0) as served,
        socket(served) as patient,
        socket(served) as pest,
        socket(served) as busy,
    ):
        await ask(busy, "!hang")
        await until(lambda: served.engine.live == 1)
        await ask(patient, "x", stream_id="mine")
        error = json.loads(await patient.recv())
        assert (error["type"], error["status"], error["stream_id"]) == ("error", 503, "mine")
        assert int(error["headers"]["retry-after-ms"]) > 0
        for _ in range(REFUSALS_MAX):
            await ask(pest, "x")
        assert await closed_with(pest) == 1013
        for _ in range(REFUSALS_MAX + 1):
            await last_word(busy, "x", stream_id="another")
        await busy.close()
        await until(lambda: served.state.admission.places_used == 0)
        assert (await last_word(patient, "Hello"))["type"] == "response.completed"


@pytest.mark.parametrize("goes_on", [True, False])
async def test_a_reader_that_stops_is_dropped_and_its_request_cancelled(
    goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is on its way is megabytes, and the close comes behind them.
    monkeypatch.setattr(abortable_websocket, "LINGER_S", DEADLINE_S)
    async with (
        serving(FakeEngine(step_s=0.0005), write_deadline_s=0.3) as served,
        socket(served, max_queue=1) as ws,
    ):
        ws.transport.pause_reading()
        include = ["message.output_text.logprobs"]
        limit = {"max_output_tokens": 4000, "ignore_eos": True}
        for stream in "abcdefgh":
            await ask(ws, stream, include=include, top_logprobs=20, stream_id=stream, **limit)
        await until(lambda: served.engine.live > 0)
        await until(lambda: not served.state.sockets.total())
        await until(lambda: served.engine.live == 0)
        if goes_on:
            ws.transport.resume_reading()
            assert await closed_with(ws) == 1008
        else:
            ws.transport.abort()


@pytest.mark.parametrize(
    ("path", "header", "code"),
    [("/v1/responses", b"Bearer no", 1008), ("/no", b"Bearer k", 1008), (GATE, b"", 1013)],
)
async def test_a_handshake_that_can_have_no_body_closes_with_a_code(
    served: Served, path: str, header: bytes, code: int
) -> None:
    app = StartupApp()
    if path != GATE:
        served.state.settings = settings(api_key=["k"])
        app.app = create_app(served.state)
    scope = {
        "type": "websocket",
        "path": path,
        "headers": [(b"authorization", header)],
        "subprotocols": [],
    }
    received: list[Any] = []

    async def receive() -> Any:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        received.append(message)

    await app(scope, receive, send)
    assert [each["type"] for each in received] == ["websocket.accept", "websocket.close"]
    assert received[1]["code"] == code
    assert received[1]["reason"].endswith(".")


@pytest.mark.parametrize("parsed", [False, True])
async def test_a_prompt_that_is_read_alone_is_gone_on_from(agent: Served, parsed: bool) -> None:
    if not parsed:
        agent.state.model = replace(agent.state.model, calls=None, reasoning=None)
    async with socket(agent) as ws:
        create = {"type": "response.create", "store": False}
        await ws.send(json.dumps({**create, "input": "Hello", "generate": False}))
        kinds = [json.loads(await ws.recv()) for _ in range(3)]
        assert [each["type"] for each in kinds] == [
            "response.created", "response.in_progress", "response.completed"
        ]  # fmt: skip
        empty = kinds[-1]["response"]
        assert (empty["status"], empty["output"]) == ("completed", [])
        assert empty["usage"]["output_tokens"] == 0 and empty["usage"]["input_tokens"] > 0
        more = {"input": "More", "previous_response_id": empty["id"]}
        await ws.send(json.dumps({**create, **more}))
        while json.loads(await ws.recv())["type"] != "response.completed":
            pass
    assert [(each.role, each.content) for each in agent.talk.messages] == [
        ("user", "Hello"), ("user", "More")
    ]  # fmt: skip
