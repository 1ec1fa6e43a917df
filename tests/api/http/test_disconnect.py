"""A client that goes takes its request with it, whatever it was doing."""

import asyncio
import json
import os
import random

from tests.api.conftest import Served, serving
from tests.api.support.fake_engine import FakeEngine
from tests.support.waiting import until


async def send_request(
    served: Served, body: dict[str, object], path: str = "/v1/chat/completions"
) -> asyncio.StreamWriter:
    """Send a request over a bare socket and return its writer."""
    _, writer = await served.dialled()
    raw = json.dumps({"messages": [{"role": "user", "content": "!hang"}], **body}).encode()
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(raw)}\r\n\r\n"
    writer.write(head.encode() + raw)
    await writer.drain()
    return writer


async def test_two_hundred_clients_leave_at_random_and_nothing_is_left() -> None:
    dice = random.Random(5)
    async with serving(FakeEngine(step_s=0.004)) as served:
        before, files = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))

        async def come_and_go(index: int) -> None:
            content = dice.choice(["!hang", "hello", "!slow"])
            body = {"stream": dice.random() < 0.5, "n": dice.randrange(1, 4)}
            messages = [{"role": "user", "content": f"{content} {index}"}]
            writer = await send_request(served, {**body, "messages": messages})
            await asyncio.sleep(dice.random() * 0.1)
            if dice.random() < 0.5:
                writer.close()
            else:
                writer.transport.abort()

        await asyncio.gather(*(come_and_go(index) for index in range(200)))
        await until(lambda: served.engine.live == 0)
        await until(lambda: len(asyncio.all_tasks()) <= before)
        await until(lambda: len(os.listdir("/proc/self/fd")) <= files)
        assert served.engine.entered == served.engine.left
        assert sum(served.state.outcomes.values()) >= served.engine.entered
        served.state.admission.check()
        assert served.state.admission.places_used == 0
        assert not served.state.live


async def test_keep_alive_comments_come_only_while_idle() -> None:
    async with serving(FakeEngine(), keep_alive_s=0.05) as served:
        request = served.http.build_request(
            "POST",
            "/v1/chat/completions",
            json={"stream": True, "messages": [{"role": "user", "content": "!hang"}]},
        )
        reply = await served.http.send(request, stream=True)
        got = b""
        async for part in reply.aiter_raw():
            got += part
            if len(got) > 40:
                break
        await reply.aclose()
        assert got.startswith(b": keep-alive\n\n: keep-alive\n\n")
    async with serving(FakeEngine(step_s=0.002)) as served:
        assert "keep-alive" not in (await served.chat(stream=True)).text
