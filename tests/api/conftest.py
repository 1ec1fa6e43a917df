"""A real server around the fake engine: uvicorn on an ephemeral port, in the test's own loop."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import openai
import pytest

from api.app import create_app
from api.config import Settings, load
from api.door import Door
from api.gate import Gate
from api.ports import ModelCard
from api.server import Host, bind, uvicorn_config
from tests.api.fake_engine import ByteText, FakeEngine

MODEL = "fake-model"


@dataclass
class Served:
    """What a test may touch."""

    url: str
    engine: FakeEngine
    door: Door
    http: httpx.AsyncClient
    openai: openai.AsyncOpenAI

    async def chat(self, text: str = "Hello", **fields: Any) -> httpx.Response:
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], **fields}
        return await self.http.post("/v1/chat/completions", json=body)

    async def complete(self, prompt: Any = "Hello", **fields: Any) -> httpx.Response:
        body = {"model": MODEL, "prompt": prompt, **fields}
        return await self.http.post("/v1/completions", json=body)


def settings(**fields: Any) -> Settings:
    return load({"port": 0, "write_deadline_s": 2.0, **fields}, {})


@asynccontextmanager
async def serving(engine: FakeEngine, **fields: Any) -> AsyncGenerator[Served, None]:
    """Serve the fake engine while the block lasts."""
    chosen = settings(**fields)
    card = ModelCard(
        name=MODEL, context_max=4096, vocab_size=257, draft_sources=("ngram", "suffix")
    )
    door = Door(engine=engine, text_tools=ByteText(), model=card, settings=chosen)
    gate = Gate()
    gate.app = create_app(door)
    listener = bind(chosen)
    url = "http://{}:{}".format(*listener.getsockname())
    host = Host(uvicorn_config(chosen, gate))
    hosting = asyncio.create_task(host.serve(sockets=[listener]))
    while not host.started:  # noqa: ASYNC110 (uvicorn has a flag, not an event)
        await asyncio.sleep(0.01)
    try:
        async with (
            httpx.AsyncClient(base_url=url, timeout=20) as http,
            openai.AsyncOpenAI(base_url=url + "/v1", api_key="none", max_retries=0) as client,
        ):
            yield Served(url, engine, door, http, client)
    finally:
        host.should_exit = True
        await hosting


@pytest.fixture
async def served() -> AsyncGenerator[Served, None]:
    async with serving(FakeEngine()) as found:
        yield found
