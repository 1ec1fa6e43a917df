"""Kept streams: numbered events, and how many are kept."""

import pytest
from starlette.types import Receive, Scope, Send

from draftwerk.api.shared import kept_streams
from draftwerk.api.shared.errors import ApiError
from draftwerk.api.shared.kept_streams import KeptStream, KeptStreams


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": scope["status"], "headers": []})
    for body in (b"data: a\n\n", b": nothing\n\n", b"data: b\n\n", b""):
        await send({"type": "http.response.body", "body": body})


async def endless(scope: Scope, receive: Receive, send: Send) -> None:
    await receive()


async def wordy(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    for _ in range(scope["count"]):
        await send({"type": "http.response.body", "body": b"x" * 100})
    if scope.get("waits"):
        await receive()


async def broken(scope: Scope, receive: Receive, send: Send) -> None:
    raise ValueError("planted")


async def ended(stream: KeptStream) -> KeptStream:
    while not stream.over:
        await stream.grown(1.0)
    return stream


async def test_events_are_numbered_and_comments_are_not_kept() -> None:
    stream = KeptStreams().begin("a", 9.0, answer, {"status": 200})
    while not stream.over:
        assert await stream.grown(1.0)
    assert stream.events == [b"id: 0\ndata: a\n\n", b"id: 1\ndata: b\n\n"]


async def test_the_oldest_that_ended_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_streams, "STREAMS_MAX", 2)
    kept = KeptStreams()
    kept.begin("live", 9.0, endless, {})
    await ended(kept.begin("ended", 9.0, answer, {"status": 200}))
    kept.begin("new", 9.0, endless, {})
    assert list(kept.streams) == ["live", "new"]
    with pytest.raises(ApiError, match="2 resumable streams") as refusal:
        kept.begin("more", 9.0, endless, {})
    assert refusal.value.status == 429
    with pytest.raises(ApiError, match="is kept"):
        kept.begin("live", 9.0, endless, {})
    for name in ("live", "new"):
        kept.find(name).drop()
    kept.check()
    assert kept.streams == {}
    assert kept.size == 0


async def test_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_streams, "BYTES_MAX", 3000)
    kept = KeptStreams()
    await ended(kept.begin("ended", 9.0, wordy, {"count": 10}))
    short = kept.begin("short", 9.0, wordy, {"count": 5, "waits": True})
    long = kept.begin("long", 9.0, wordy, {"count": 1000, "waits": True})
    while long.count < 1000:
        await long.grown(1.0)
        kept.check()
    assert list(kept.streams) == ["short", "long"]
    assert (short.first, short.count) == (0, 5)
    assert long.first > 900
    assert long.event(long.first - 1) is None
    assert long.event(long.first) == b"id: %d\n" % long.first + b"x" * 100
    assert long.event(999) == b"id: 999\n" + b"x" * 100
    for each in (short, long):
        each.drop()
    kept.check()


async def test_one_event_over_the_bound_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_streams, "BYTES_MAX", 50)
    kept = KeptStreams()
    stream = await ended(kept.begin("a", 9.0, wordy, {"count": 3}))
    assert (stream.first, stream.count) == (2, 3)
    kept.check()


async def test_what_breaks_is_an_error_of_the_server(caplog: pytest.LogCaptureFixture) -> None:
    stream = await ended(
        KeptStreams().begin("a", 9.0, broken, {"type": "http", "request_id": "r1"})
    )
    assert stream.head is not None
    assert stream.head["status"] == 500
    assert b"internal" in stream.events[0]
    assert "id=r1 a kept stream broke" in caplog.text
