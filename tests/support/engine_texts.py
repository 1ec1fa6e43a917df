"""The texts of many requests to one engine, which come one after the other."""

import os
import signal
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio

from draftwerk.actors.engine import Engine
from draftwerk.actors.events.client_events import Delta, Ended, Started
from draftwerk.speculative.request import Options
from draftwerk.speculative.sampling import Sampling

T = TypeVar("T")


def any_request(number: int) -> tuple[tuple[int, ...], Options]:
    """Return a request over the default model's tokens: half of them greedy, half seeded."""
    sampling = Sampling(temperature=float(number % 2), seed=number)
    prompt = tuple(100 + (7 * number + n) % 900 for n in range(12))
    return prompt, Options(sampling=sampling, tokens_max=60, ignore_eos=True)


async def texts_of(
    engine: Engine, request: Callable[[int], tuple[tuple[int, ...], Options]], count: int
) -> list[str]:
    """Return the texts of requests 0 to `count` - 1; several choices of one are joined."""
    found = [""] * count

    async def stream(number: int) -> None:
        prompt, options = request(number)
        parts: dict[int, str] = {}
        async with engine.generate(prompt, options, request_id=str(number)) as events:
            async for event in events:
                if not isinstance(event, Started):
                    assert isinstance(event, Delta | Ended), event
                    parts[event.choice] = parts.get(event.choice, "") + event.text
        found[number] = "|".join(parts[choice] for choice in sorted(parts))

    async with anyio.create_task_group() as tasks:
        for number in range(count):
            tasks.start_soon(stream, number)
            await anyio.sleep(0.002 * (number % 3))
    return found


async def though_killed(engine: Engine, ask: Callable[[], Awaitable[T]], role: str = "target") -> T:
    """Return what is answered while a model process is killed, once it generates."""

    async def kill() -> None:
        begun = engine.snapshot().counts.generated_tokens
        while engine.snapshot().counts.generated_tokens == begun:  # noqa: ASYNC110
            await anyio.sleep(0.001)
        victim = engine.snapshot().models.processes[role]
        assert victim is not None
        os.kill(victim, signal.SIGKILL)

    found = list[T]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(kill)
        found.append(await ask())
    return found[0]
