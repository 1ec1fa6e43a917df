"""The process: a socket that answers at once, an engine that comes up behind it, an orderly end.

bind ── 503 while build() loads ── ready ── signal ── 503, streams finish ── limit ── exit 0
                                              └── second signal: no waiting, exit 128 + n
"""

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field

import msgspec
import uvicorn
import uvloop
from starlette.types import ASGIApp

from draftwerk.api.app.app import create_app
from draftwerk.api.app.log_lines import log_to_stderr
from draftwerk.api.app.model_states import ShelfStates
from draftwerk.api.app.scraping import ScrapeApp
from draftwerk.api.app.tls import Certificate, certificate_of, follow
from draftwerk.api.app.watchers import (
    bound_collections,
    follow_places,
    trim_memory,
    watch_lag,
    watch_memory,
)
from draftwerk.api.cli.banner import banner
from draftwerk.api.cli.progress_line import ProgressLine, printed
from draftwerk.api.http.http_protocol import protocols
from draftwerk.api.http.startup import StartupApp
from draftwerk.api.openai.batches.room import batch_room, idle_work
from draftwerk.api.openai.receipts.recording import recorder_of
from draftwerk.api.openai.receipts.signing import signer_of
from draftwerk.api.shared.config import Settings
from draftwerk.api.shared.ports import RunningServer
from draftwerk.api.shared.state import ServerState
from draftwerk.machine.host import open_files_up_to, share_one_heap
from draftwerk.settings.setting_fields import ConfigError, fields_of
from draftwerk.speculative.protocol.frames import OnProgress

FLUSH_S = 2
"""For the last bytes of streams that the server's end has cut short."""
FILES_BESIDE = 128
"""Files that a server has open beside its clients' connections: processes, log, stores."""
FILES_SHORT = "%d files may be open at once (ulimit -n): --connections-max is %d, not %d"
LOCAL = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Addresses that mean every one, and the one among them that is this machine's own."""
SIGNALS = (signal.SIGTERM, signal.SIGINT)

Build = Callable[[Settings, OnProgress], AbstractAsyncContextManager[RunningServer]]

log = logging.getLogger("draftwerk")


def serve(settings: Settings, build: Build) -> int:
    """Serve until a signal or the engine's end; returns the exit code."""
    log_to_stderr(settings.log_format)
    listener = bind(settings)
    scraped = bind(settings, "metrics_port") if settings.metrics_port else None
    share_one_heap()
    settings = with_files(settings)
    certificate = certificate_of(settings)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(HttpServer(settings, build, listener, certificate, scraped).run())


def with_files(settings: Settings) -> Settings:
    """Return the settings with as many connections as this process may open files for."""
    wanted = settings.connections_max + FILES_BESIDE
    allowed = open_files_up_to(wanted)
    if allowed >= wanted:
        return settings
    connections = max(1, allowed - FILES_BESIDE)
    log.warning(FILES_SHORT, allowed, connections, settings.connections_max)
    return msgspec.structs.replace(settings, connections_max=connections)


def bind(settings: Settings, field: str = "port") -> socket.socket:
    """Return the listening socket; ConfigError if the address is taken or not ours."""
    host, port = settings.host, getattr(settings, field)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # Without its protocol named, asyncio leaves Nagle's delay on: 40 ms on every reply.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, ValueError) as error:  # ValueError: of a name that cannot be one
        listener.close()
        said = error.strerror if isinstance(error, OSError) else error
        is_taken = getattr(error, "errno", 0) == errno.EADDRINUSE
        more = f"; {fields_of(Settings)[field].flag} names another" if is_taken else ""
        raise ConfigError(f"cannot listen on {host}:{port}: {said}{more}") from None
    return listener


class Host(uvicorn.Server):
    """uvicorn without its signal handlers: `serve` decides when to stop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield


@dataclass(slots=True)
class HttpServer:
    """One run of the process."""

    settings: Settings
    build: Build
    listener: socket.socket
    certificate: Certificate | None = None
    scraped: socket.socket | None = None
    """Where metrics are read without a key."""
    startup: StartupApp = field(default_factory=StartupApp)
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    state: ServerState | None = None
    progress: ProgressLine = field(default_factory=ProgressLine)
    signals: list[int] = field(default_factory=list[int])
    main: asyncio.Task[object] | None = None

    async def run(self) -> int:
        """Serve; returns the exit code."""
        self.main = asyncio.current_task()
        hosts = {Host(uvicorn_config(self.settings, self.startup, self.certificate)): self.listener}
        if self.scraped is not None:
            hosts[Host(uvicorn_config(self.settings, ScrapeApp(self.startup)))] = self.scraped
        hosting = [asyncio.create_task(host.serve(sockets=[at])) for host, at in hosts.items()]
        try:
            with self._signals_caught():
                await self._engine()
            return 0
        except asyncio.CancelledError:
            if not self.signals:
                raise
            return 128 + self.signals[0]
        except ConfigError:
            raise
        except Exception:
            log.exception("the engine ended")
            return 1
        finally:
            for host in hosts:
                host.should_exit = True
            await asyncio.gather(*hosting)

    async def _engine(self) -> None:
        """Build the engine, open the gate, wait for the end, drain."""
        async with AsyncExitStack() as stack:
            # Before anything is loaded, and before a ConfigError would come in a group of errors.
            signer = signer_of(self.settings.signing_key)
            recorder = recorder_of(self.settings.record, self.settings.receipts)
            if recorder is not None:
                stack.callback(recorder.close)
            batches = batch_room(self.settings.files)
            if batches is not None:
                stack.callback(batches.close)
            async with self.progress.told_again():
                running = await stack.enter_async_context(self.build(self.settings, self._report))
            self.state = state = ServerState(
                engine=running.engine,
                text_tools=running.text_tools,
                model=running.model,
                settings=self.settings,
                bodies=running.bodies,
                signer=signer,
                recorder=recorder,
            )
            models = None if running.shelved is None else ShelfStates(state, running.shelved)
            self.startup.app = create_app(state, models=models, batches=batches)
            states = [state] if models is None else models.states
            if models is not None:
                await stack.enter_async_context(models.shelf.running())
            self.ready.set()
            bound_collections()
            keyed = bool(self.settings.api_key)
            others = None if models is None else [each.model.name for each in states[1:]]
            said = banner(state.model, self.url, self.url_elsewhere, keyed, others)
            printed(said + "\n", sys.stdout)
            watches = [
                asyncio.create_task(watch_lag(state)),
                asyncio.create_task(watch_memory(state)),
                asyncio.create_task(trim_memory()),
            ]
            if self.certificate is not None:
                watches.append(asyncio.create_task(follow(self.certificate)))
            if running.places is not None:
                watches.append(asyncio.create_task(follow_places(state, running.places)))
            watches.append(batch_work := asyncio.create_task(idle_work(batches, states)))
            try:
                await self.stop.wait()
                batch_work.cancel()
                if models is not None:
                    models.shelf.close()
                await drain(states, self.settings.drain_s)
            finally:
                for watch in watches:
                    watch.cancel()
                for each in states:
                    each.abort_all()

    @property
    def url(self) -> str:
        """Where this machine reaches the server: not every system connects to 0.0.0.0."""
        host: str
        host, port = self.listener.getsockname()[:2]
        return url_of(LOCAL.get(host, host), port, self.certificate is not None)

    @property
    def url_elsewhere(self) -> str:
        """Where other machines reach it, if it listens on every address; else empty."""
        host, port = self.listener.getsockname()[:2]
        if host not in LOCAL:
            return ""
        return url_of(socket.gethostname(), port, self.certificate is not None)

    def _report(self, line: str) -> None:
        """Show one line of progress while loading; callable from any thread."""
        self.startup.progress = line
        self.progress.show(line)

    @contextlib.contextmanager
    def _signals_caught(self) -> Generator[None, None, None]:
        loop = asyncio.get_running_loop()
        for number in SIGNALS:
            with contextlib.suppress(ValueError, RuntimeError):  # not the main thread: a test
                loop.add_signal_handler(number, self.on_signal, number)
        try:
            yield
        finally:
            for number in SIGNALS:
                with contextlib.suppress(ValueError, RuntimeError):
                    loop.remove_signal_handler(number)

    def on_signal(self, number: int) -> None:
        """First: stop in order. Then: stop now. Then: be gone."""
        self.signals.append(number)
        if self.ready.is_set() and len(self.signals) == 1:
            log.info("stopping: live requests have %g s", self.settings.drain_s)
            self.stop.set()
        elif len(self.signals) <= 2 and self.main is not None:
            self.main.cancel()
        else:
            os._exit(128 + number)


def url_of(host: str, port: int, is_tls: bool = False) -> str:
    """Return the URL of a host by name or address."""
    scheme = "https" if is_tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


async def drain(states: Sequence[ServerState], limit_s: float) -> None:
    """Refuse new requests, let live ones finish within the limit, then end them with an error."""
    states[0].leaving.set()
    try:
        async with asyncio.timeout(limit_s):
            await asyncio.gather(*(state.engine.drain() for state in states))
            await asyncio.gather(*(state.wait_idle() for state in states))
    except TimeoutError:
        log.warning("ending %d live requests", sum(len(state.live) for state in states))
        for state in states:
            state.abort_all()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FLUSH_S):
                await asyncio.gather(*(state.wait_idle() for state in states))


def uvicorn_config(
    settings: Settings, app: ASGIApp, certificate: Certificate | None = None
) -> uvicorn.Config:
    """Return uvicorn's configuration: transport only, no logging, no proxies, no lifespan."""
    # Its errors are what clients do; what breaks in here, `RequestIdMiddleware` has logged.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    http, websocket = protocols(settings)
    return uvicorn.Config(
        app,
        http=http,
        ws=websocket,
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        ssl_context_factory=None if certificate is None else lambda _, __: certificate.context,
        ws_max_size=settings.body_bytes,
        ws_per_message_deflate=False,
        timeout_keep_alive=settings.idle_s,  # pyright: ignore[reportArgumentType] of seconds
        timeout_graceful_shutdown=FLUSH_S,
    )
