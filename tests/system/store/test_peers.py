"""Engines that hand blocks to each other: found by name, and moved when one leaves."""

from pathlib import Path

import pytest

from draftwerk import AsyncLLM
from draftwerk_tools.loadtest.server.launcher import free_port
from tests.support.waiting import until
from tests.system.store.test_kv_store import PROMPTS, counted, storing, texts_of

pytestmark = pytest.mark.asyncio(loop_scope="module")


def peer(model: Path, folder: Path, *peers: int, listen: int = 0) -> AsyncLLM:
    key = folder / "key"
    key.write_text("a secret of all of these\n")
    others = tuple(f"127.0.0.1:{port}" for port in peers)
    door = {"kv_listen": f"127.0.0.1:{listen}"} if listen else {}
    return storing(model, kv_key=str(key), kv_peers=others, **door)


async def knows_blocks(llm: AsyncLLM) -> None:
    """Wait until an engine has been told what its peers hold."""
    await until(lambda: counted(llm, "blocks") >= len(PROMPTS))


async def test_blocks_are_fetched_from_the_engine_that_has_them_and_moved_when_it_leaves(
    model: Path, tmp_path: Path
) -> None:
    port, other = free_port(), free_port()
    async with peer(model, tmp_path, port, listen=other) as two:
        async with peer(model, tmp_path, listen=port) as one:
            plain = await texts_of(one)
            await knows_blocks(two)
            assert await texts_of(two) == plain
            fetched = counted(two, "hits")
            assert fetched > 0
        # It has gone in order, and what it computed behind the prompts was fetched as it left.
        assert counted(two, "hits") >= fetched
        assert await texts_of(two) == plain
        async with peer(model, tmp_path, other) as three:
            await knows_blocks(three)
            assert await texts_of(three) == plain
            assert counted(three, "hits") > 0
