"""Ways to send a body and feed an exchange: HTTP (SSE or whole replies) and WebSocket."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from draftwerk_tools.loadtest.client.clock import Clock
from draftwerk_tools.loadtest.client.exchange import Exchange, Failure
from draftwerk_tools.loadtest.client.http.sse import SSEParser
from draftwerk_tools.loadtest.client.target import Target
from draftwerk_tools.loadtest.options import LoadTestOptions
from draftwerk_tools.loadtest.server.reply_types import error_message

CLOSE_S = 2.0


@dataclass(slots=True)
class Connection:
    """The connection's state: the one that a request went out on."""

    reused: bool = False


@dataclass(slots=True)
class HttpTransport:
    """POST, answered by an event stream or one JSON object."""

    session: aiohttp.ClientSession
    url: str
    clock: Clock

    async def send(self, body: bytes, exchange: Exchange) -> None:
        exchange.sent_s = self.clock()
        try:
            async with await self._post(body, exchange) as response:
                if response.status != 200:
                    raise await refusal(response)
                await self._read(response, exchange)
        except (aiohttp.ClientError, ConnectionError) as error:
            raise connection_failure(error, self.url) from error
        exchange.finish()

    async def close(self) -> None:
        await self.session.close()

    async def _post(self, body: bytes, exchange: Exchange) -> aiohttp.ClientResponse:
        """Send until there is a reply; only a kept connection found dead is tried again.

        A server may close an idle connection at the moment a request goes out on it. Nothing of
        the request was served then, and every HTTP client sends it again; the time lost counts.
        """
        while True:
            connection = Connection()
            try:
                return await self.session.post(self.url, data=body, trace_request_ctx=connection)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
                if not connection.reused or isinstance(error, aiohttp.ClientConnectorError):
                    raise
                exchange.resent += 1

    async def _read(self, response: aiohttp.ClientResponse, exchange: Exchange) -> None:
        if exchange.whole or response.content_type == "application/json":
            exchange.whole = True
            exchange.receive(await response.read(), self.clock())
            return
        parser = SSEParser()
        async for received in response.content.iter_any():
            at_s = self.clock()
            for event in parser.feed(received):
                exchange.receive(event, at_s)
        for event in parser.close():
            exchange.receive(event, self.clock())


@dataclass(slots=True)
class WsTransport:
    """Responses over WebSocket; a connection carries one request at a time and is then reused."""

    session: aiohttp.ClientSession
    url: str
    clock: Clock
    keep_alive: bool
    _idle: list[aiohttp.ClientWebSocketResponse] = field(
        default_factory=list[aiohttp.ClientWebSocketResponse]
    )

    async def send(self, body: bytes, exchange: Exchange) -> None:
        exchange.sent_s = self.clock()
        try:
            socket = await self._connection()
        except aiohttp.WSServerHandshakeError as error:
            detail = f"{error.message} ({self.url})"
            raise Failure(f"HTTP {error.status}", detail, error.status) from error
        except (aiohttp.ClientError, ConnectionError) as error:
            raise connection_failure(error, self.url) from error
        clean = False
        try:
            await self._converse(socket, body, exchange)
            clean = self.keep_alive
        finally:
            # A socket in the middle of an answer cannot carry another; closing it is the cancel.
            await self._put_back(socket, clean)
        exchange.finish()

    async def close(self) -> None:
        for socket in self._idle:
            await socket.close()
        await self.session.close()

    async def _connection(self) -> aiohttp.ClientWebSocketResponse:
        while self._idle:
            socket = self._idle.pop()
            if not socket.closed:
                return socket
        return await self.session.ws_connect(self.url, max_msg_size=0, compress=0)

    async def _put_back(self, socket: aiohttp.ClientWebSocketResponse, clean: bool) -> None:
        if clean:
            self._idle.append(socket)
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await socket.close()

    async def _converse(
        self, socket: aiohttp.ClientWebSocketResponse, body: bytes, exchange: Exchange
    ) -> None:
        try:
            await socket.send_str(body.decode())
            while not exchange.done:
                message = await socket.receive()
                at_s = self.clock()
                if message.type not in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                    raise Failure("disconnect", f"closed with {socket.close_code}")
                data: str | bytes = message.data
                exchange.receive(data.encode() if isinstance(data, str) else data, at_s)
        except (aiohttp.ClientError, ConnectionError) as error:
            raise connection_failure(error, self.url) from error


Transport = HttpTransport | WsTransport
"""Sends one body; returns when the answer is complete, raises `Failure` when it cannot be."""


def connection_failure(error: Exception, url: str) -> Failure:
    """Name what broke: no connection at all, or one that was lost."""
    kind = "connect" if isinstance(error, aiohttp.ClientConnectorError) else "disconnect"
    return Failure(kind, f"{str(error) or type(error).__name__} ({url})")


async def refusal(response: aiohttp.ClientResponse) -> Failure:
    """Make the failure of a reply that is not 200."""
    detail = f"{error_message(await response.read())} ({response.url})"
    retry_after = response.headers.get("Retry-After")
    return Failure(f"HTTP {response.status}", detail, response.status, retry_after)


def open_session(options: LoadTestOptions, target: Target) -> aiohttp.ClientSession:
    """Open a session without any limit on connections: the plan alone decides how many."""
    connector = (
        aiohttp.TCPConnector(limit=0, keepalive_timeout=15)
        if options.keep_alive
        else aiohttp.TCPConnector(limit=0, force_close=True)
    )
    return aiohttp.ClientSession(
        connector=connector,
        headers=target.headers,
        timeout=aiohttp.ClientTimeout(total=None),
        trace_configs=[_reuse_noted()],
    )


def _reuse_noted() -> aiohttp.TraceConfig:
    """Make a trace that marks a request's `Connection` when it is a kept one."""

    async def reused(session: aiohttp.ClientSession, trace: Any, params: object) -> None:
        if isinstance(trace.trace_request_ctx, Connection):
            trace.trace_request_ctx.reused = True

    config = aiohttp.TraceConfig()
    config.on_connection_reuseconn.append(reused)
    return config


def open_transport(options: LoadTestOptions, target: Target, clock: Clock) -> Transport:
    """Choose the transport; call it inside a running loop."""
    session = open_session(options, target)
    if options.transport == "ws":
        url = target.url(options.endpoint).replace("http", "ws", 1)
        return WsTransport(session, url, clock, options.keep_alive)
    return HttpTransport(session, target.url(options.endpoint), clock)
