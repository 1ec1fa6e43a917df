"""The engine of `draftwerk serve` without HTTP, for benchmarks."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import perf_counter

from msgspec.structs import replace

from draftwerk.actors.engine import Engine
from draftwerk.actors.events.client_events import Delta, Ended, Failed
from draftwerk.actors.monitoring.sequence_stats import SequenceStats
from draftwerk.api.shared.config import Settings
from draftwerk.assembly.build import build_engine
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Chat, ChatMessage, Prompt


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


@dataclass(slots=True)
class Answer:
    """A request's first choice, and what it took."""

    text: str = ""
    tokens: list[int] = field(default_factory=list[int])
    stats: SequenceStats = field(default_factory=SequenceStats)
    first_s: float = 0.0
    """To the first token."""
    seconds: float = 0.0
    """To the last."""


async def generate(
    running_engine: Engine, prompt: Prompt, options: Options, request_id: str
) -> Answer:
    """Return a request's answer. Raises RuntimeError for one that fails."""
    found, begun = Answer(), perf_counter()
    async with running_engine.generate(prompt, options, request_id=request_id) as events:
        async for event in events:
            match event:
                case Delta():
                    found.first_s = found.first_s or perf_counter() - begun
                    found.text += event.text
                    found.tokens.extend(event.tokens)
                case Ended():
                    found.text += event.text
                    found.stats = event.stats
                case Failed():
                    raise RuntimeError(event.reason)
                case _:
                    pass
    found.seconds = perf_counter() - begun
    return found
