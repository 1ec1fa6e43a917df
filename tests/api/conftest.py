"""A real server around the fake engine: uvicorn on an ephemeral port, in the test's own loop."""

import asyncio
import inspect
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import httpx
import msgspec
import openai
import pytest
import pytest_asyncio
import uvicorn.server

from draftwerk.api.app.app import create_app
from draftwerk.api.app.server import Host, bind, uvicorn_config
from draftwerk.api.app.tls import Certificate
from draftwerk.api.http.startup import StartupApp
from draftwerk.api.openai.batches.room import batch_room, idle_work
from draftwerk.api.shared.config import Settings, load
from draftwerk.api.shared.ports import EngineClient, ServedModel
from draftwerk.api.shared.state import ServerState
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Chat
from draftwerk.speculative.requests.fim import FimTokens
from draftwerk_tools.loadtest.server.launcher import free_port
from tests.api.support.agents import CALLS, THINKING
from tests.api.support.fake_engine import ByteText, FakeEngine
from tests.api.support.fake_replicas import (
    DOOR,
    behind_replicas,
    skip_where_replicas_differ,
)
from tests.api.support.through_serve import OtherProcess, ServeHost, serve_host
from tests.support.waiting import DEADLINE_S, until

MODEL = "fake-model"
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/completions": {"prompt": "Hello"},
    "/v1/responses": {"input": "Hello"},
    "/v1/messages": {"messages": HELLO, "max_tokens": 90},
    "/api/chat": {"messages": HELLO, "stream": False},
    "/api/generate": {"prompt": "Hello", "stream": False},
}
"""What each protocol needs beside the model's name."""
CARD = ServedModel(
    name=MODEL,
    context_max=4096,
    vocab_size=257,
    draft_sources=("ngram", "suffix"),
    blends=True,
)
TICK_S = 0.01
SERVE_HOSTS: list[ServeHost] = []
"""Of the file of tests that runs, with TEST_DOOR=serve."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of a file on one loop, which its listening socket shares."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and inspect.iscoroutinefunction(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)
    skip_where_replicas_differ(items)


@dataclass
class Served:
    """What a test may touch."""

    url: str
    engine: FakeEngine
    state: ServerState
    http: httpx.AsyncClient

    @cached_property
    def openai(self) -> openai.AsyncOpenAI:
        """The stock client; it is slow to make."""
        return openai.AsyncOpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0)

    @property
    def talk(self) -> Chat:
        """The conversation that the engine was given last."""
        prompt = self.engine.submitted[-1][0]
        assert isinstance(prompt, Chat)
        return prompt

    @property
    def options(self) -> Options:
        """What was last asked of the engine."""
        return self.engine.submitted[-1][1]

    async def dialled(self, limit: int = 2**16) -> tuple[StreamReader, StreamWriter]:
        """Return a bare connection."""
        host, port = self.url.removeprefix("http://").split(":")
        return await asyncio.open_connection(host, int(port), limit=limit)

    async def chat(self, text: str = "Hello", **fields: Any) -> httpx.Response:
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}
        return await self.http.post("/v1/chat/completions", json=body)

    async def complete(self, prompt: Any = "Hello", **fields: Any) -> httpx.Response:
        body = {"model": MODEL, "prompt": prompt, **fields}
        return await self.http.post("/v1/completions", json=body)


def settings(**fields: Any) -> Settings:
    return load({"port": 0, "write_deadline_s": 2.0, **fields}, {})


class Hurried:
    """asyncio for uvicorn's server, which looks every tenth of a second whether it is to end."""

    async def sleep(self, delay: float) -> None:
        await asyncio.sleep(min(delay, TICK_S))

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)


uvicorn.server.asyncio = Hurried()  # type: ignore[assignment]


@asynccontextmanager
async def hosting(
    chosen: Settings, certificate: Certificate | None = None
) -> AsyncGenerator[tuple[StartupApp, str], None]:
    """Listen while the block lasts; yields the gate to put an app behind, and the URL."""
    startup, listener = StartupApp(), bind(chosen)
    host = Host(uvicorn_config(chosen, startup, certificate))
    task = asyncio.create_task(host.serve(sockets=[listener]))
    await until(lambda: host.started)
    try:
        scheme = "https" if certificate else "http"
        yield startup, "{}://{}:{}".format(scheme, *listener.getsockname())
    finally:
        host.should_exit = True
        await task


@asynccontextmanager
async def behind(
    startup: StartupApp, url: str, engine: FakeEngine, chosen: Settings
) -> AsyncGenerator[Served, None]:
    """Put a new server state with this engine behind the startup app, and clients before it."""
    async with (
        serving_engine(engine, CARD) as client,
        httpx.AsyncClient(base_url=url, timeout=DEADLINE_S, verify=False) as http,
    ):
        state = ServerState(engine=client, text_tools=ByteText(), model=CARD, settings=chosen)
        room = batch_room(chosen.files)
        startup.app = create_app(state, batches=room)
        served = Served(url, engine, state, http)
        work = asyncio.create_task(idle_work(room, [state]))
        try:
            yield served
        finally:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            if room is not None:
                room.close()
        if "openai" in vars(served):
            await served.openai.close()


@asynccontextmanager
async def serving_engine(fake: FakeEngine, model: ServedModel) -> AsyncGenerator[EngineClient]:
    """Yield the engine of the API: the fake itself, or replicas of it."""
    if not DOOR:
        yield fake
        return
    async with behind_replicas(fake, model) as door:
        yield door


@asynccontextmanager
async def serving(engine: FakeEngine, **fields: Any) -> AsyncGenerator[Served, None]:
    """Serve a fake engine with settings of its own."""
    if DOOR == "serve":
        if fields or not SERVE_HOSTS:
            pytest.skip("Serve: a door with settings of its own")
        async with through_serve(engine) as served:
            yield served
        return
    chosen = settings(**fields)
    async with hosting(chosen) as (startup, url), behind(startup, url, engine, chosen) as served:
        yield served


@asynccontextmanager
async def through_serve(engine: FakeEngine) -> AsyncGenerator[Served, None]:
    """Have Ray Serve's door serve this engine; its state is in another process."""
    [found] = SERVE_HOSTS
    found.use(engine)
    elsewhere = cast(ServerState, OtherProcess())
    async with httpx.AsyncClient(base_url=found.url, timeout=DEADLINE_S, verify=False) as http:
        served = Served(found.url, engine, elsewhere, http)
        yield served
        if "openai" in vars(served):
            await served.openai.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module", autouse=DOOR == "serve")
async def serve_replicas() -> AsyncGenerator[None, None]:
    """The replicas that Ray Serve's door is connected to during a file of tests."""
    if DOOR != "serve":
        yield
        return
    async with serve_host(CARD) as found:
        SERVE_HOSTS.append(found)
        yield
        SERVE_HOSTS.clear()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncGenerator[tuple[StartupApp, str], None]:
    """One listening socket for a file of tests."""
    async with hosting(settings()) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def served(host: tuple[StartupApp, str]) -> AsyncGenerator[Served, None]:
    """A new engine and a new server state for every test."""
    if DOOR == "serve":
        async with through_serve(FakeEngine()) as found:
            yield found
        return
    async with behind(*host, FakeEngine(), settings()) as found:
        yield found


@pytest.fixture
def unused_tcp_port() -> int:
    """A port for a server that is still to start."""
    return free_port()


@pytest.fixture
def agent(served: Served) -> Served:
    """A server whose model calls tools and reasons."""
    served.state.model = msgspec.structs.replace(
        served.state.model, calls=CALLS, reasoning=THINKING, variables=("enable_thinking",)
    )
    return served


@pytest.fixture
def coder(served: Served) -> Served:
    """A server whose model has tokens around a gap."""
    gap = FimTokens(before=1, after=2, middle=3, ends=(4, 5), repository=6, file=7)
    served.state.model = msgspec.structs.replace(served.state.model, fim=gap)
    return served


@pytest.fixture
def exact(served: Served) -> Served:
    """A server whose texts are the same on every machine."""
    served.state.model = msgspec.structs.replace(served.state.model, exact=True, fingerprint="fp_1")
    return served
