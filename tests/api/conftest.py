"""A real server around the fake engine: uvicorn on an ephemeral port, in the test's own loop."""

import asyncio
import inspect
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import pytest_asyncio

from draftwerk.api.app import create_app
from draftwerk.api.core.config import Settings, load
from draftwerk.api.core.ports import ModelCard
from draftwerk.api.core.state import Door
from draftwerk.api.http.startup import Gate
from draftwerk.api.server import Host, bind, uvicorn_config
from tests.api.support.fake_engine import ByteText, FakeEngine

MODEL = "fake-model"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of a file on one loop, which its listening socket shares."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and inspect.iscoroutinefunction(getattr(item, "obj", None)):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@dataclass
class Served:
    """What a test may touch."""

    url: str
    engine: FakeEngine
    door: Door
    http: httpx.AsyncClient

    @cached_property
    def openai(self) -> openai.AsyncOpenAI:
        """The stock client; it is slow to make."""
        return openai.AsyncOpenAI(base_url=self.url + "/v1", api_key="none", max_retries=0)

    async def chat(self, text: str = "Hello", **fields: Any) -> httpx.Response:
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}
        return await self.http.post("/v1/chat/completions", json=body)

    async def complete(self, prompt: Any = "Hello", **fields: Any) -> httpx.Response:
        body = {"model": MODEL, "prompt": prompt, **fields}
        return await self.http.post("/v1/completions", json=body)


def settings(**fields: Any) -> Settings:
    return load({"port": 0, "write_deadline_s": 2.0, **fields}, {})


@asynccontextmanager
async def hosting(chosen: Settings) -> AsyncGenerator[tuple[Gate, str], None]:
    """Listen while the block lasts; yields the gate to put an app behind, and the URL."""
    gate, listener = Gate(), bind(chosen)
    host = Host(uvicorn_config(chosen, gate))
    task = asyncio.create_task(host.serve(sockets=[listener]))
    while not host.started:  # noqa: ASYNC110 (uvicorn has a flag, not an event)
        await asyncio.sleep(0.01)
    try:
        yield gate, "http://{}:{}".format(*listener.getsockname())
    finally:
        host.should_exit = True
        await task


@asynccontextmanager
async def behind(
    gate: Gate, url: str, engine: FakeEngine, chosen: Settings
) -> AsyncGenerator[Served, None]:
    """Put a new door with this engine behind the gate, and clients before it."""
    card = ModelCard(
        name=MODEL, context_max=4096, vocab_size=257, draft_sources=("ngram", "suffix")
    )
    door = Door(engine=engine, text_tools=ByteText(), model=card, settings=chosen)
    gate.app = create_app(door)
    async with httpx.AsyncClient(base_url=url, timeout=20, verify=False) as http:
        served = Served(url, engine, door, http)
        yield served
        if "openai" in vars(served):
            await served.openai.close()


@asynccontextmanager
async def serving(engine: FakeEngine, **fields: Any) -> AsyncGenerator[Served, None]:
    """Serve a fake engine with settings of its own."""
    chosen = settings(**fields)
    async with hosting(chosen) as (gate, url), behind(gate, url, engine, chosen) as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncGenerator[tuple[Gate, str], None]:
    """One listening socket for a file of tests."""
    async with hosting(settings()) as found:
        yield found


@pytest_asyncio.fixture(loop_scope="module")
async def served(host: tuple[Gate, str]) -> AsyncGenerator[Served, None]:
    """A new engine and a new door for every test."""
    async with behind(*host, FakeEngine(), settings()) as found:
        yield found
