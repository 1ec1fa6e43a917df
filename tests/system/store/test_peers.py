"""Servers that hand blocks to each other: found by name, and moved when one leaves."""

import asyncio
from pathlib import Path

import pytest

from draftwerk.loadtest.server.launcher import free_port
from tests.support.waiting import DEADLINE_S
from tests.system.store.test_kv_store import PROMPTS, Server, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

HITS, HELD = "draftwerk_kv_store_hits_total", "draftwerk_kv_store_blocks"


def options(folder: Path, *peers: int, listen: int = 0) -> tuple[str, ...]:
    key = folder / "key"
    key.write_text("a secret of all of these servers\n")
    words = [word for port in peers for word in ("--kv-peers", f"127.0.0.1:{port}")]
    door = ("--kv-listen", f"127.0.0.1:{listen}") if listen else ()
    return ("--kv-key", str(key), *door, *words)


async def knows_blocks(server: Server) -> None:
    """Wait until a server has been told what its peers hold."""
    async with asyncio.timeout(DEADLINE_S):
        while (await server.metrics()).total(HELD) < len(PROMPTS):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_blocks_are_fetched_from_the_server_that_has_them_and_moved_when_it_leaves(
    model: Path, tmp_path: Path
) -> None:
    port, other = free_port(), free_port()
    async with serving(model, *options(tmp_path, port, listen=other)) as two:
        async with serving(model, *options(tmp_path, listen=port)) as one:
            plain = await one.texts()
            await knows_blocks(two)
            assert await two.texts() == plain
            fetched = (await two.metrics()).total(HITS)
            assert fetched > 0
        # It has gone in order, and what it computed behind the prompts was fetched as it left.
        assert (await two.metrics()).total(HITS) >= fetched
        assert await two.texts() == plain
        async with serving(model, *options(tmp_path, other)) as three:
            await knows_blocks(three)
            assert await three.texts() == plain
            assert (await three.metrics()).total(HITS) > 0
