"""Servers that hand blocks to each other: found by name, and moved when one leaves."""

from pathlib import Path

import pytest

from draftwerk.loadtest.server.launcher import free_port
from tests.system.store.test_kv_store import PROMPTS, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

HITS = "draftwerk_kv_store_hits_total"


def options(folder: Path, *peers: int, listen: int = 0) -> tuple[str, ...]:
    key = folder / "key"
    key.write_text("a secret of all of these servers\n")
    words = [word for port in peers for word in ("--kv-peers", f"127.0.0.1:{port}")]
    door = ("--kv-listen", f"127.0.0.1:{listen}") if listen else ()
    return ("--kv-key", str(key), *door, *words)


async def test_blocks_are_fetched_from_the_server_that_has_them_and_moved_when_it_leaves(
    model: Path, tmp_path: Path
) -> None:
    port, other = free_port(), free_port()
    async with serving(model, *options(tmp_path, port, listen=other)) as two:
        async with serving(model, *options(tmp_path, listen=port)) as one:
            plain = await one.texts()
            assert await two.texts() == plain
            fetched = (await two.metrics()).total(HITS)
            assert fetched >= len(PROMPTS)
        # It has gone in order, and what it computed behind the prompts was fetched as it left.
        assert (await two.metrics()).total(HITS) >= fetched
        assert await two.texts() == plain
        async with serving(model, *options(tmp_path, other)) as three:
            assert await three.texts() == plain
            assert (await three.metrics()).total(HITS) > 0
