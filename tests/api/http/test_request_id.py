"""The id on a reply: one, given by the client, the server or a proxy."""

from collections.abc import Sequence
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from draftwerk.api.http.request_id import STARTS, RequestIdMiddleware

Headers = Sequence[tuple[bytes, bytes]]


async def ids_of(start: str, given: str | None, proxy_gives_ids: bool) -> tuple[str, list[str]]:
    """Return the id that the application is told, and those on its reply."""
    told, headers = await reply_to(start, given, proxy_gives_ids)
    assert {name for name, _ in headers} <= {b"x-request-id"}
    return told, [value.decode() for _, value in headers]


async def reply_to(
    start: str, given: str | None, proxy_gives_ids: bool, more: Headers = ()
) -> tuple[str, Headers]:
    """Return the id that the application is told, and the headers of its reply."""
    sent: list[Message] = []
    told = ""

    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        nonlocal told
        told = scope["request_id"]
        await send({"type": start, "status": 200})

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    async def send(message: Message) -> None:
        sent.append(message)

    headers = [*more] if given is None else [*more, (b"x-request-id", given.encode())]
    scope: Any = {"type": "http", "headers": headers}
    await RequestIdMiddleware(application, proxy_gives_ids)(scope, receive, send)
    (message,) = sent
    return told, message.get("headers", [])


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("given", [None, "mine_1.x", "a b", "x" * 129])
async def test_every_reply_has_the_id_that_the_log_has(start: str, given: str | None) -> None:
    told, ids = await ids_of(start, given, proxy_gives_ids=False)
    assert ids == [told] and (told == given) == (given == "mine_1.x")


@pytest.mark.parametrize("start", STARTS)
async def test_an_id_that_the_proxy_sends_back_is_not_sent_twice(start: str) -> None:
    told, ids = await ids_of(start, "of-the-proxy", proxy_gives_ids=True)
    # Serve's proxy adds it to what is no answer to a WebSocket.
    assert (told, ids) == ("of-the-proxy", [] if start == "http.response.start" else [told])


async def test_a_proxys_id_that_is_not_taken_has_ours_beside_it() -> None:
    told, ids = await ids_of("http.response.start", "a b", proxy_gives_ids=True)
    assert ids == [told] != ["a b"]


@pytest.mark.parametrize("proxy_gives_ids", (False, True))
async def test_anthropics_clients_find_it_by_their_own_name(proxy_gives_ids: bool) -> None:
    version = [(b"anthropic-version", b"2023-06-01")]
    told, headers = await reply_to("http.response.start", "mine", proxy_gives_ids, version)
    assert told == "mine" and dict(headers)[b"request-id"] == b"mine"
    assert (b"x-request-id" in dict(headers)) is not proxy_gives_ids
