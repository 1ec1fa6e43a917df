"""A resumable stream read by a browser's own EventSource over connections that break."""

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from draftwerk.api.responses import resuming
from tests.api.conftest import serving
from tests.api.responses.test_resuming import begun, events_of, text_of
from tests.api.support import browser
from tests.api.support.fake_engine import FakeEngine

CUTS = 100
READ = """
window.got = []; window.breaks = 0;
window.source = new EventSource('/v1/streams/STREAM');
source.onerror = () => { window.breaks += 1; };
source.onmessage = (event) => {
  window.got.push([Number(event.lastEventId), event.data]);
  if (event.data === '[DONE]') { window.done = true; source.close(); }
};
"""


@dataclass
class Cutter:
    """A way to a port that breaks connections for a stream after some bytes, as often as told.

    The headers stay whole: a browser that has some of them takes the reply for another type, and
    does not come again.
    """

    port: int
    dice: random.Random
    left: int = CUTS

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.port)
        request = await reader.readuntil(b"\r\n\r\n")
        back.write(request.replace(b"keep-alive", b"close"))
        room = 10**9
        if b"/v1/streams/" in request and self.left:
            self.left -= 1
            writer.write(await there.readuntil(b"\r\n\r\n"))
            room = self.dice.randrange(1500)
        while room and (part := await there.read(min(2**16, room))):
            writer.write(part)
            room -= len(part)
        writer.close()
        back.close()


@asynccontextmanager
async def cutting(port: int) -> AsyncGenerator[tuple[Cutter, str], None]:
    """Yield a cutter that listens, and its URL."""
    cutter = Cutter(port, random.Random(5))
    async with await asyncio.start_server(cutter.pass_on, "127.0.0.1", 0) as server:
        yield cutter, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_stock_event_source_puts_together_what_was_cut_a_hundred_times(
    chromium: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resuming, "RETRY", b"retry: 20\n")
    async with serving(FakeEngine()) as served:
        fields: dict[str, Any] = {"seed": 7, "max_tokens": 1500, "ignore_eos": True}
        plain = (await served.complete("Cut me", **fields)).json()["choices"][0]["text"]
        stream_id = await begun(served, "Cut me", **fields)
        async with (
            cutting(int(served.url.rpartition(":")[2])) as (cutter, url),
            browser.opened(chromium, url) as page,
        ):
            await page.run(READ.replace("STREAM", stream_id))
            await page.until("window.done", 60.0)
            got = [(number, data) for number, data in await page.run("window.got")]
            assert await page.run("window.breaks") == CUTS
        assert cutter.left == 0
        whole = await served.http.get(f"/v1/streams/{stream_id}")
    assert got == events_of(whole.content)
    assert text_of(got) == plain
