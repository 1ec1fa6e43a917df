"""Resumable streams: cut anywhere, they are put together byte for byte."""

import asyncio
import json
import random
from typing import Any

import httpx
import pytest

from draftwerk.api.app.server import drain
from draftwerk.api.shared import kept_streams
from tests.api.conftest import MODEL, Served, serving
from tests.api.support.fake_engine import FakeEngine
from tests.support.waiting import DEADLINE_S, until

RESUMABLE = {"stream": True, "stream_options": {"resumable": True}}
CUTS = 100


def events_of(raw: bytes) -> list[tuple[int, str]]:
    """Return the number and data of each whole event, as a browser reads them."""
    found: list[tuple[int, str]] = []
    for block in raw.split(b"\n\n")[:-1]:
        fields = dict(line.split(b": ", 1) for line in block.split(b"\n"))
        if b"data" in fields:
            found.append((int(fields[b"id"]), fields[b"data"].decode()))
    return found


def text_of(events: list[tuple[int, str]]) -> str:
    """Return the text of a completion's events, of which the last is [DONE]."""
    assert events[-1][1] == "[DONE]"
    chunks = [json.loads(data) for _, data in events[:-1]]
    return "".join(choice["text"] for chunk in chunks for choice in chunk["choices"])


async def begun(served: Served, prompt: str, **fields: Any) -> str:
    """Start a resumable completion and leave at its first bytes; returns its id."""
    body = {"model": MODEL, "prompt": prompt, **RESUMABLE, **fields}
    async with served.http.stream("POST", "/v1/completions", json=body) as reply:
        assert reply.status_code == 200
        async for _ in reply.aiter_bytes():
            break
        return "cmpl-" + reply.headers["x-request-id"]


async def piece(served: Served, stream_id: str, last: int | None, bytes_max: int) -> bytes | None:
    """Return some bytes of the rest of a stream and cut it; None behind its last event."""
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    raw = b""
    async with served.http.stream("GET", f"/v1/streams/{stream_id}", headers=headers) as reply:
        if reply.status_code == 204:
            return None
        assert reply.headers["content-type"].startswith("text/event-stream")
        async for part in reply.aiter_bytes():
            raw += part
            if len(raw) >= bytes_max:
                break
    return raw[:bytes_max]


async def test_a_stream_cut_a_hundred_times_is_whole(served: Served) -> None:
    fields: dict[str, Any] = {"seed": 7, "max_tokens": 900, "ignore_eos": True}
    whole = (await served.complete("Cut me", **fields)).json()["choices"][0]["text"]
    stream_id = await begun(served, "Cut me", **fields)
    dice, events = random.Random(3), list[tuple[int, str]]()
    for _ in range(CUTS):
        last = events[-1][0] if events else None
        raw = await piece(served, stream_id, last, dice.randrange(1, 1500))
        if raw is None:
            break
        events += events_of(raw)
    while (raw := await piece(served, stream_id, events[-1][0], 10**9)) is not None:
        events += events_of(raw)
    assert [number for number, _ in events] == list(range(len(events)))
    assert text_of(events) == whole


async def test_each_reader_has_headers_of_its_own(served: Served) -> None:
    stream_id = await begun(served, "hello", seed=3)
    for name in ("a", "b", "c"):
        reply = await served.http.get(f"/v1/streams/{stream_id}", headers={"x-request-id": name})
        assert reply.headers.get_list("x-request-id") == [name]


async def test_the_connection_that_began_it_has_the_same_events() -> None:
    async with serving(FakeEngine()) as served:
        body = {"model": MODEL, "prompt": "Hello", "seed": 1, **RESUMABLE}
        first = await served.http.post("/v1/completions", json=body)
        again = await served.http.get("/v1/streams/cmpl-" + first.headers["x-request-id"])
        plain = await served.http.post("/v1/completions", json={**body, "stream_options": {}})
    assert events_of(first.content) == events_of(again.content)
    assert b"id: " not in plain.content
    assert text_of(events_of(first.content)) == "".join(
        choice["text"]
        for line in plain.text.split("\n\n")[:-2]
        for choice in json.loads(line.removeprefix("data: "))["choices"]
    )


async def test_two_read_the_rest_while_it_comes() -> None:
    async with serving(FakeEngine(step_s=0.002)) as served:
        stream_id = await begun(served, "Both", max_tokens=300, ignore_eos=True)
        url = f"/v1/streams/{stream_id}"
        both = await asyncio.gather(served.http.get(url), served.http.get(url))
    assert events_of(both[0].content) == events_of(both[1].content)
    assert events_of(both[0].content)[-1][1] == "[DONE]"


async def test_a_background_response_goes_on_by_the_stock_client(served: Served) -> None:
    client = served.openai
    async with await client.responses.create(
        model=MODEL, input="Hello", stream=True, background=True, temperature=0
    ) as stream:
        created = await anext(aiter(stream))
    assert created.type == "response.created"
    assert created.response.background
    found = await client.responses.retrieve(created.response.id, stream=True, starting_after=0)
    rest = [each async for each in found]
    assert [each.sequence_number for each in rest] == list(range(1, len(rest) + 1))
    assert rest[-1].type == "response.completed"
    whole = await client.responses.create(model=MODEL, input="Hello", temperature=0)
    assert rest[-1].response.output_text == whole.output_text


async def test_without_readers_it_is_ended_after_a_while() -> None:
    async with serving(FakeEngine(step_s=0.01), resume_s=0.05) as served:
        stream_id = await begun(served, "!slow", max_tokens=2000, ignore_eos=True)
        assert served.state.live
        await until(lambda: not served.state.live)
        gone = await served.http.get(f"/v1/streams/{stream_id}")
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "stream_not_found")
    assert served.state.outcomes["cancelled"] == 1


async def test_it_can_be_ended_at_once(served: Served) -> None:
    served.engine.step_s = 0.01
    stream_id = await begun(served, "Hello", max_tokens=2000, ignore_eos=True)
    ended = await served.http.delete(f"/v1/streams/{stream_id}")
    served.engine.step_s = 0.0
    assert ended.json() == {"id": stream_id, "object": "stream", "deleted": True}
    await until(lambda: not served.state.live)
    assert (await served.http.get(f"/v1/streams/{stream_id}")).status_code == 404


async def test_an_error_before_the_first_event_has_its_status(served: Served) -> None:
    reply = await served.complete("!refuse", **RESUMABLE)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "prompt")
    stream_id = "cmpl-" + reply.headers["x-request-id"]
    await until(lambda: not served.state.streams[""].streams)
    assert (await served.http.get(f"/v1/streams/{stream_id}")).status_code == 404


async def test_a_failure_on_the_way_is_the_last_event(served: Served) -> None:
    served.engine.step_s = 0.005
    stream_id = await begun(served, "!fail")
    rest = await served.http.get(f"/v1/streams/{stream_id}")
    served.engine.step_s = 0.0
    assert "error" in json.loads(events_of(rest.content)[-2][1])


async def test_a_reader_of_a_stream_that_is_ended_is_cut_off(served: Served) -> None:
    served.engine.step_s = 0.01
    stream_id = await begun(served, "Hello", max_tokens=2000, ignore_eos=True)
    with pytest.raises(httpx.RemoteProtocolError):
        async with served.http.stream("GET", f"/v1/streams/{stream_id}") as reply:
            await served.http.delete(f"/v1/streams/{stream_id}")
            async for _ in reply.aiter_bytes():
                pass
    assert served.state.readers == 0


async def test_what_is_no_longer_kept_is_refused(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_streams, "BYTES_MAX", 5000)
    stream_id = await begun(served, "Hello", max_tokens=300, ignore_eos=True)
    await until(lambda: not served.state.live)
    first = served.state.streams[""].find(stream_id).first
    assert first > 0
    url = f"/v1/streams/{stream_id}?starting_after="
    early, late = [await served.http.get(url + str(each)) for each in (first - 2, first - 1)]
    assert (early.status_code, late.status_code) == (400, 200)
    assert f"is {first}." in early.json()["error"]["message"]
    assert events_of(late.content)[0][0] == first
    assert events_of(late.content)[-1][1] == "[DONE]"


async def test_the_end_of_a_server_waits_for_a_reader() -> None:
    async with serving(FakeEngine()) as served:
        stream_id = await begun(served, "Hello", max_tokens=300, ignore_eos=True)
        await until(lambda: not served.state.live)
        with served.state.reading():
            draining = asyncio.create_task(drain([served.state], DEADLINE_S))
            await asyncio.sleep(0.05)
            assert not draining.done()
            rest = await served.http.get(f"/v1/streams/{stream_id}")
        await draining
        assert events_of(rest.content)[-1][1] == "[DONE]"


async def test_a_live_stream_without_reader_is_ended_with_the_server() -> None:
    async with serving(FakeEngine(step_s=0.01)) as served:
        stream_id = await begun(served, "Hello", max_tokens=2000, ignore_eos=True)
        await drain([served.state], 0.05)
        rest = await served.http.get(f"/v1/streams/{stream_id}")
        assert "shutting down" in events_of(rest.content)[-2][1]


async def test_a_full_server_starts_none(served: Served) -> None:
    served.state.memory.full = True
    reply = await served.complete("Hello", **RESUMABLE)
    assert (reply.status_code, reply.json()["error"]["code"]) == (503, "overloaded")
    assert "retry-after" in reply.headers
    await until(lambda: not served.state.streams[""].streams)


async def test_a_background_response_is_cancelled_by_the_stock_client(served: Served) -> None:
    client = served.openai
    body: dict[str, Any] = {"model": MODEL, "input": "!held", "stream": True, "background": True}
    async with await client.responses.create(**body, extra_body={"ignore_eos": True}) as stream:
        async for event in stream:
            if event.type == "response.output_text.delta":
                break
    [response_id] = served.state.streams[""].streams
    cancelled = await client.responses.cancel(response_id)
    assert (cancelled.id, cancelled.status) == (response_id, "cancelled")
    assert cancelled.output_text
    await until(lambda: not served.state.live)
    rest = await client.responses.retrieve(response_id, stream=True)
    *_, last = [each async for each in rest]
    assert last.type == "response.incomplete"
    assert last.response == cancelled


async def test_what_ended_is_not_cancelled(served: Served) -> None:
    body = {"model": MODEL, "input": "Hello", "stream": True, "background": True}
    first = await served.http.post("/v1/responses", json=body)
    url = f"/v1/responses/resp_{first.headers['x-request-id']}"
    again = await served.http.post(url + "/cancel")
    assert again.json()["status"] == "completed"
    assert again.content == (await served.http.get(url)).content
    assert (await served.http.post("/v1/responses/resp_x/cancel")).status_code == 404


@pytest.mark.parametrize(
    ("query", "headers", "param"),
    [
        ("?starting_after=x", {}, "starting_after"),
        ("?starting_after=-1", {}, "starting_after"),
        ("?starting_after=999999", {}, "starting_after"),
        ("", {"Last-Event-ID": "1.5"}, "Last-Event-ID"),
    ],
)
async def test_a_number_that_is_none_is_refused(
    served: Served, query: str, headers: dict[str, str], param: str
) -> None:
    stream_id = await begun(served, "Hello")
    reply = await served.http.get(f"/v1/streams/{stream_id}{query}", headers=headers)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


async def test_another_key_finds_nothing() -> None:
    async with serving(FakeEngine(), api_key=("a:one", "b:two")) as served:
        one, two = ({"Authorization": f"Bearer {key}"} for key in ("one", "two"))
        body = {"model": MODEL, "prompt": "Hello", **RESUMABLE}
        first = await served.http.post("/v1/completions", json=body, headers=one)
        url = "/v1/streams/cmpl-" + first.headers["x-request-id"]
        found = [(await served.http.get(url, headers=each)).status_code for each in (one, two)]
    assert found == [200, 404]
