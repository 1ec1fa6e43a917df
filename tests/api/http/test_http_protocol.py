"""Raw sockets that misbehave: each is answered or closed in time, and the server goes on."""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from draftwerk.api.http import http_protocol
from draftwerk.api.http.http_protocol import FULL, INTERIM
from tests.api.conftest import Served, serving
from tests.api.support.fake_engine import FakeEngine
from tests.api.support.quiet import quiet
from tests.support.waiting import DEADLINE_S, until

__all__ = ["quiet"]

HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n"
BODY = json.dumps({"messages": [{"role": "user", "content": "x"}]}).encode()
WHOLE = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hasty() -> AsyncGenerator[Served, None]:
    """A server that waits for no headers."""
    async with serving(FakeEngine(), header_deadline_s=0.3) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def strict() -> AsyncGenerator[Served, None]:
    """A server that waits for no body, and not long for another request."""
    async with serving(FakeEngine(), body_deadline_s=0.3, idle_s=0.2, body_max="64K") as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def patient() -> AsyncGenerator[Served, None]:
    """A server that waits for whatever may come, but not long for another request."""
    async with serving(FakeEngine(), idle_s=0.2, body_max="64K") as found:
        yield found


async def talk(served: Served, *parts: bytes, pause_s: float = 0.0, size: int = -1) -> bytes:
    """Send parts, then read until the server closes, or as much as comes at once up to `size`."""
    reader, writer = await served.dialled()
    reading = asyncio.create_task(reader.read(size))
    try:
        for part in parts:
            if not reading.done():
                writer.write(part)
                await asyncio.sleep(pause_s)
        async with asyncio.timeout(DEADLINE_S):
            return await reading
    except ConnectionError:
        return b"reset"
    finally:
        writer.close()


def status(reply: bytes) -> int:
    return int(reply.split(b" ", 2)[1])


def error_body(reply: bytes) -> dict[str, object]:
    return json.loads(reply.split(b"\r\n\r\n", 1)[1])["error"]


LATE = {
    "a silent socket": (),
    "half a request line": (b"POST /v1/ch",),
    "half a header": (b"GET /health HTTP/1.1\r\nhost: x\r\nx-long: ",),
    "headers without an end": (b"GET /health HTTP/1.1\r\nhost: x\r\n",),
    "empty lines": (b"\r\n\r\n",),
}


@pytest.mark.parametrize("parts", LATE.values(), ids=LATE.keys())
async def test_headers_that_do_not_come_are_a_408(hasty: Served, parts: tuple[bytes]) -> None:
    reply = await talk(hasty, *parts)
    assert status(reply) == 408
    assert error_body(reply)["type"] == "timeout_error"


async def test_headers_that_drip_are_a_408(hasty: Served) -> None:
    drops = [b"GET /health HTTP/1.1\r\n", *[b"x: y\r\n"] * 20]
    assert status(await talk(hasty, *drops, pause_s=0.05)) == 408


async def test_half_a_body_is_a_408_though_the_server_stood_still(
    strict: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_protocol, "GRACE_S", 0.1)
    reader, writer = await strict.dialled()
    writer.write(HEAD + b"expect: 100-continue\r\ncontent-length: 100\r\n\r\n")
    assert status(await reader.readuntil(b"\r\n\r\n")) == 100, "the body is waited for"
    time.sleep(0.5)  # noqa: ASYNC251 - both deadlines are over
    assert status(await reader.read()) == 408
    writer.close()


async def test_a_body_that_is_not_read_does_not_hold_the_socket(strict: Served) -> None:
    head = b"GET /health HTTP/1.1\r\nhost: x\r\ncontent-length: 9999\r\n\r\nx"
    reply = await talk(strict, head)
    assert status(reply) == 200


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\nhost: x\r\nx-big: " + b"a" * 200_000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nhost: x\r\nx-big: " + b"a" * 200_000,
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nhost: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\n" + b"a: b\r\n" * 40_000 + b"\r\n",
    ],
)
async def test_headers_that_are_too_large_are_a_431(patient: Served, head: bytes) -> None:
    reply = await talk(patient, head)
    assert reply == b"reset" or status(reply) == 431


async def test_a_body_that_is_too_large_is_a_413_declared_or_not(patient: Served) -> None:
    declared = HEAD + b"content-length: 70000\r\n\r\n" + b" " * 70_000
    assert status(await talk(patient, declared, size=2**16)) == 413
    chunk = b"8000\r\n" + b" " * 0x8000 + b"\r\n"
    chunked = HEAD + b"transfer-encoding: chunked\r\n\r\n" + chunk * 3 + b"0\r\n\r\n"
    assert status(await talk(patient, chunked, size=2**16)) == 413


async def test_a_body_without_end_is_cut_off(strict: Served) -> None:
    head = HEAD + b"content-length: 9999999999\r\n\r\n"
    reply = await talk(strict, head, *[b" " * 65536] * 12)
    assert reply == b"reset" or status(reply) == 413


NOT_HTTP = {
    "noise": b"\x00\x01\x02\x03\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 50,
    "a bad method": b"G@T / HTTP/1.1\r\nhost: x\r\n\r\n",
    "a bad version": b"GET / HTTP/9.9\r\nhost: x\r\n\r\n",
    "a bad length": HEAD + b"content-length: minus\r\n\r\n",
    "two lengths": HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\nxx",
    "length and chunks": HEAD + b"content-length: 4\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "a bad chunk": HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
    "a bad header": b"GET /health HTTP/1.1\r\nb@d header: x\r\n\r\n",
    "a bad url": b"GET \xff\xfe HTTP/1.1\r\nhost: x\r\n\r\n",
}


@pytest.mark.parametrize("raw", NOT_HTTP.values(), ids=NOT_HTTP.keys())
async def test_what_is_not_http_is_a_400_in_our_shape(patient: Served, raw: bytes) -> None:
    reply = await talk(patient, raw)
    assert status(reply) == 400
    assert error_body(reply)["type"] == "invalid_request_error"


CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
LIES = {
    "a chunk longer than said": CHUNKED + b"2\r\nabcdef\r\n0\r\n\r\n",
    "a chunk shorter than said": CHUNKED + b"9\r\nab\r\n0\r\n\r\n",
    "a chunk of negative length": CHUNKED + b"-1\r\nab\r\n0\r\n\r\n",
    "a chunk of 2^64 bytes": CHUNKED + b"10000000000000000\r\nab\r\n0\r\n\r\n",
    "a chunk of 2^62 bytes": CHUNKED + b"4000000000000000\r\n" + b"x" * 70_000,
    "chunks without an end": CHUNKED + b"1\r\n{\r\n" * 40_000,
    "a chunk's size in words": CHUNKED + b"two\r\nab\r\n0\r\n\r\n",
    "a chunk extension of 100 KB": CHUNKED + b"2;" + b"x" * 100_000 + b"\r\n{}\r\n0\r\n\r\n",
    "trailers without an end": CHUNKED + b"2\r\n{}\r\n0\r\n" + b"a: b\r\n" * 40_000,
    "chunked twice": HEAD + b"transfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "gzip": HEAD + b"transfer-encoding: gzip\r\n\r\n\x1f\x8b\x08",
    "a coding unknown": HEAD + b"transfer-encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "an encoded body": HEAD + b"content-encoding: gzip\r\ncontent-length: 3\r\n\r\n\x1f\x8b\x08",
    "a body of another type": HEAD + b"content-type: image/png\r\ncontent-length: 2\r\n\r\n{}",
    "a length of 2^70": HEAD + b"content-length: 1180591620717411303424\r\n\r\n",
    "a length of a plus": HEAD + b"content-length: +2\r\n\r\n{}",
    "a length in hex": HEAD + b"content-length: 0x2\r\n\r\n{}",
    "a length of nothing": HEAD + b"content-length: \r\n\r\n{}",
    "a length too short": HEAD + b"content-length: 1\r\n\r\n{}",
    "a folded header": b"GET /health HTTP/1.1\r\nhost: x\r\nx-a: b\r\n c\r\n\r\n",
    "a space before the colon": b"GET /health HTTP/1.1\r\nhost : x\r\n\r\n",
    "no name": b"GET /health HTTP/1.1\r\n: x\r\n\r\n",
    "a null in a header": b"GET /health HTTP/1.1\r\nhost: x\r\nx-a: \x00\r\n\r\n",
    "a return in a header": b"GET /health HTTP/1.1\r\nhost: x\r\nx-a: b\rc\r\n\r\n",
    "line feeds alone": b"GET /health HTTP/1.1\nhost: x\n\n",
    "bytes beyond ASCII": b"GET /health HTTP/1.1\r\nhost: \xff\xfe\r\nx-a: \xc3\xa9\r\n\r\n",
    "a key beyond ASCII": HEAD + b"authorization: Bearer \xff\xfe\r\ncontent-length: 0\r\n\r\n",
    "an id with a line feed": HEAD + b"x-request-id: a%0ab\r\ncontent-length: 2\r\n\r\n{}",
    "an origin that is no URL": HEAD + b"origin: http://[::\r\ncontent-length: 2\r\n\r\n{}",
    "an origin of nothing": HEAD + b"origin: \r\ncontent-length: 2\r\n\r\n{}",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /health HTTP/1.1\r\nhost: x\r\nhost: y\r\n\r\n",
    "a whole URL": b"GET http://x/health HTTP/1.1\r\nhost: x\r\n\r\n",
    "a URL that is none": b"GET http://[::/health HTTP/1.1\r\nhost: x\r\n\r\n",
    "a star": b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n",
    "connect": b"CONNECT x:443 HTTP/1.1\r\nhost: x\r\n\r\n",
    "trace": b"TRACE /health HTTP/1.1\r\nhost: x\r\n\r\n",
    "a method unknown": b"BREW /v1/chat/completions HTTP/1.1\r\nhost: x\r\n\r\n",
    "http 0.9": b"GET /health\r\n\r\n",
    "http 2 with prior knowledge": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a path of percent signs": b"GET /%%%% HTTP/1.1\r\nhost: x\r\n\r\n",
    "a path of dots": b"GET /v1/models/..%2f..%2fetc HTTP/1.1\r\nhost: x\r\n\r\n",
    "a request in a body": HEAD + b"content-length: 2\r\n\r\n{}GET /health HTTP/1.1\r\n\r\n",
    "a hundred requests at once": b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n" * 100,
    "good and then bad": b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n\x00\x01",
}


@pytest.mark.parametrize("raw", LIES.values(), ids=LIES.keys())
async def test_whatever_comes_is_answered_and_is_no_fault_of_ours(
    strict: Served, raw: bytes
) -> None:
    reply = await talk(strict, raw)
    statuses = [int(found) for found in re.findall(rb"HTTP/1\.1 (\d+) ", reply)]
    assert reply == b"reset" or statuses
    assert all(each < 500 for each in statuses)
    assert (await strict.http.get("/health")).status_code == 200


HOSTS = {
    "none": b"",
    "two": b"host: x\r\nhost: y\r\n",
    "the same twice": b"Host: x\r\nhost: x\r\n",
}


@pytest.mark.parametrize("hosts", HOSTS.values(), ids=HOSTS)
@pytest.mark.parametrize("rest", [b"", b"upgrade: websocket\r\nconnection: upgrade\r\n"])
async def test_a_request_of_http_1_1_names_exactly_one_host(
    patient: Served, hosts: bytes, rest: bytes
) -> None:
    reply = await talk(patient, b"GET /health HTTP/1.1\r\n" + hosts + rest + b"\r\n")
    assert status(reply) == 400
    assert error_body(reply)["message"] == "The request must name exactly one host."


ODD = {
    "an unknown upgrade": (b"GET /health HTTP/1.1\r\nhost: x\r\nupgrade: h2c\r\n\r\n", 200),
    "http 1.0": (b"GET /health HTTP/1.0\r\n\r\n", 200),
    "expect": (
        HEAD + b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY,
        100,
    ),
    "head": (b"HEAD /health HTTP/1.1\r\nhost: x\r\n\r\n", 200),
    "options": (b"OPTIONS /health HTTP/1.1\r\nhost: x\r\n\r\n", 405),
    "a query": (b"GET /health?a=%ff HTTP/1.1\r\nhost: x\r\n\r\n", 200),
    "a path out": (b"GET /../../etc/passwd HTTP/1.1\r\nhost: x\r\n\r\n", 404),
    "a null in the path": (b"GET /v1/models/%00 HTTP/1.1\r\nhost: x\r\n\r\n", 404),
    "a bad code point": (b"GET /v1/models/%ff%fe HTTP/1.1\r\nhost: x\r\n\r\n", 404),
    "a socket path by get": (b"GET /v1/responses HTTP/1.1\r\nhost: x\r\n\r\n", 405),
    "two at once": (WHOLE + WHOLE, 200),
}


@pytest.mark.parametrize(("raw", "expected"), ODD.values(), ids=ODD.keys())
async def test_what_is_odd_is_answered_all_the_same(
    patient: Served, raw: bytes, expected: int
) -> None:
    reply = await talk(patient, raw, size=2**16)
    assert status(reply) == expected


EXPECT = b"expect: 100-continue\r\ncontent-length: %d\r\n\r\n"


async def test_a_client_that_waits_to_be_told_to_go_on_is_refused_and_let_go(
    patient: Served,
) -> None:
    too_large = 2**17
    refused = HEAD + EXPECT % too_large
    reply = await talk(patient, refused)
    assert (status(reply), b"\r\nconnection: close\r\n" in reply) == (413, True)
    # What is taken, and the body of one that does not wait, leave the connection as it is.
    taken = HEAD + EXPECT % len(BODY) + BODY
    reply = await talk(patient, taken + refused + b" " * too_large + taken)
    assert re.findall(rb"HTTP/1\.1 (\d+) ", reply) == [b"100", b"200", b"413", b"100", b"200"]
    assert b"connection: close" not in reply


async def test_a_client_of_http_1_0_gets_a_stream_without_chunks(patient: Served) -> None:
    wanted = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3}
    for stream in (True, False):
        body = json.dumps({**wanted, "stream": stream}).encode()
        head = HEAD.replace(b"1.1", b"1.0") + b"content-length: %d\r\n\r\n" % len(body)
        reply = await talk(patient, head + body)
        assert status(reply) == 200
        assert b"transfer-encoding" not in reply
        received = reply.split(b"\r\n\r\n", 1)[1]
        if stream:
            events = received.decode().split("\n\n")
            assert events[-2:] == ["data: [DONE]", ""]
            assert all("choices" in json.loads(each.removeprefix("data: ")) for each in events[:-2])
        else:
            assert json.loads(received)["object"] == "chat.completion"


H2C = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAA\r\n"


async def test_a_client_that_asks_for_http_2_is_answered_in_http_1_1() -> None:
    """Java's client asks so in each request, whose body is none of the other protocol's."""
    asking = WHOLE.replace(b"content-length", H2C + b"content-length")
    chunks = (
        HEAD + H2C + b"transfer-encoding: chunked\r\n\r\n" + b"%x\r\n%s\r\n" % (len(BODY), BODY)
    )
    last = b"GET /health HTTP/1.1\r\nhost: x\r\n" + H2C.replace(b"n: ", b"n: close, ") + b"\r\n"
    async with serving(FakeEngine()) as served:
        for parts in (
            [asking + asking + chunks + b"0\r\n\r\n" + last],
            [asking[:90], asking[90:-9], asking[-9:] + asking, chunks, b"0\r\n\r\n", last],
        ):
            reply = await talk(served, *parts, pause_s=0.01)
            assert re.findall(rb"HTTP/1\.1 (\d+) ", reply) == [b"200"] * 4
            assert reply.count(b'"finish_reason":"stop"') == 3 and b'{"status":"ok"}' in reply


async def test_many_requests_that_ask_for_http_2_come_at_once(patient: Served) -> None:
    bare = b"GET /health HTTP/1.1\r\nhost: x\r\n" + H2C + b"\r\n"
    assert (await talk(patient, bare * 1500)).count(b"HTTP/1.1 200 OK") == 1500


async def test_a_compressed_body_is_refused_by_name(patient: Served) -> None:
    reply = await talk(patient, LIES["an encoded body"], size=2**16)
    assert (status(reply), error_body(reply)["param"]) == (400, "content-encoding")


async def test_an_idle_connection_is_closed(strict: Served) -> None:
    reply = await talk(strict, b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
    assert status(reply) == 200


async def test_empty_lines_after_a_request_are_headers_that_do_not_come(hasty: Served) -> None:
    found = 408
    async with asyncio.timeout(DEADLINE_S):
        while found == 408:  # the machine was slower than the server's patience
            reader, writer = await hasty.dialled()
            writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
            found = status(await reader.readuntil(b"}"))
        writer.write(b"\r\n")
        assert (found, status(await reader.read())) == (200, 408)
    writer.close()


async def test_after_all_that_they_serve(hasty: Served, strict: Served, patient: Served) -> None:
    for each in (hasty, strict, patient):
        while (reply := await each.chat()).status_code == 408:
            pass  # the machine was slower than the server's patience
        assert reply.status_code == 200
        await until(lambda each=each: not each.engine.live and not each.state.live)


async def test_probes_are_answered_while_idle_connections_fill_the_cap(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving(FakeEngine(), connections_max=3) as served:
        open_ones = [await served.dialled() for _ in range(3)]
        for path, expected in (("/health", 200), ("/ready?x", 200), ("/healthy", 503), ("/", 503)):
            reply = await talk(served, f"GET {path} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            assert (path, status(reply)) == (path, expected)
        reply = await talk(served, WHOLE)
        assert status(reply) == 503
        assert error_body(reply)["code"] == "overloaded" and b"\r\nretry-after: 1\r\n" in reply
        said = [each.getMessage() for each in caplog.records if "connections are open" in each.msg]
        assert said == [FULL % 3], "once"
        for _, writer in open_ones:
            writer.close()
        async with asyncio.timeout(DEADLINE_S):
            while status(reply := await talk(served, b"GET / HTTP/1.0\r\n\r\n")) == 503:
                pass  # the server has not seen yet that the others have gone
        assert status(reply) == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_a_half_closed_client_gets_its_answer(
    patient: Served, stream: bool, version: bytes
) -> None:
    asked = {"messages": [{"role": "user", "content": "x"}], "stream": stream}
    raw = json.dumps(asked).encode()
    for _ in range(20):
        reader, writer = await patient.dialled()
        head = HEAD.replace(b"HTTP/1.1", b"HTTP/" + version)
        writer.write(head + b"content-length: %d\r\n\r\n" % len(raw) + raw)
        writer.write_eof()
        async with asyncio.timeout(DEADLINE_S):
            reply = await reader.read()
        interim, _, answer = reply.rpartition(b"HTTP/1.1 ")
        assert answer.startswith(b"200 ") and interim in (b"", INTERIM)
        assert version == b"1.1" or not interim
        assert b"data: [DONE]" in answer if stream else b'"finish_reason"' in answer
        writer.close()


async def test_a_reader_that_stops_is_dropped_and_its_request_cancelled() -> None:
    async with serving(FakeEngine(step_s=0.0005), write_deadline_s=0.3) as served:
        reader, writer = await served.dialled(limit=1024)
        body = {
            "prompt": "x",
            "stream": True,
            "n": 16,
            "logprobs": 20,
            "max_tokens": 4000,
            "ignore_eos": True,
        }
        raw = json.dumps(body).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n\r\n"
        writer.write(head.encode() + raw)
        await until(lambda: served.engine.live == 1)
        await until(lambda: served.engine.live == 0)
        assert served.engine.finished == 0
        await until(lambda: not served.state.live)
        del reader
        writer.transport.abort()
