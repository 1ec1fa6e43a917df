"""The engine of `draftwerk serve` without HTTP, for benchmarks."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from msgspec.structs import replace

from draftwerk.actors.client_prompts import Chat, ChatMessage, Prompt
from draftwerk.actors.engine import Engine
from draftwerk.actors.messages import Delta, Ended, Failed
from draftwerk.api.core.config import Settings
from draftwerk.assembly.build import build_engine
from draftwerk.speculative.requests.request import Options


@asynccontextmanager
async def engine(settings: Settings) -> AsyncGenerator[Engine]:
    """Run an engine as `draftwerk serve` would with these settings, but without a spare.

    A spare imports and loads for many seconds, on the cores that what is measured computes on.
    """
    async with build_engine(replace(settings, spare="off"), print) as running:
        yield running.engine


def chat(text: str) -> Chat:
    """Return a conversation of one question."""
    return Chat((ChatMessage("user", text),))


async def generate(
    running_engine: Engine, prompt: Prompt, options: Options, request_id: str
) -> tuple[str, int]:
    """Return a request's first choice: its text and its count of tokens."""
    text, count = "", 0
    async with running_engine.generate(prompt, options, request_id=request_id) as events:
        async for event in events:
            match event:
                case Delta():
                    text += event.text
                    count += len(event.tokens)
                case Ended():
                    text += event.text
                case Failed():
                    raise RuntimeError(event.reason)
    return text, count
