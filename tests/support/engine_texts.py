"""The texts of many requests to one engine, which come one after the other."""

from collections.abc import Callable

import anyio

from draftwerk.actors.engine import Engine
from draftwerk.actors.messages import Delta, Ended, Started
from draftwerk.speculative.requests.request import Options


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
