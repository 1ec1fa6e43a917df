"""A whole server whose prompts another process computes: the plain texts, however it is killed."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.support.tiny_models import save_tiny_with_text
from tests.system.store.test_kv_store import Server, serving

pytestmark = pytest.mark.asyncio


async def process(server: Server, role: str, but: int = 0) -> int:
    """Return the id of a model process that is up, another one than `but`."""
    while True:
        page = await server.metrics()
        if page.by_label("draftwerk_device_up", "device").get(role):
            found = int(page.by_label("draftwerk_device_process", "device")[role])
            if found != but:
                return found
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("family", [pytest.param("llama", marks=pytest.mark.grid), "qwen3_5_text"])
async def test_prompts_computed_apart_and_lost_on_the_way_give_the_plain_texts(
    family: str, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    save_tiny_with_text(model, 3, family)
    async with serving(model) as server:
        texts = await server.texts()
    # The last --spare counts: its process forks the others.
    options = ("--prefill-processes", "1", "--spare", "imports")
    async with serving(model, *options) as server:
        victim = await process(server, "prefill 0")
        assert await server.texts() == texts
        page = await server.metrics()
        assert page.total("draftwerk_prefilled_apart_tokens_total") > 100
        os.kill(victim, signal.SIGKILL)
        assert await server.texts() == texts
        assert await process(server, "prefill 0", but=victim) != victim
        target = await process(server, "target")
        os.kill(target, signal.SIGKILL)
        assert await server.texts() == texts
        assert await process(server, "target", but=target) != target
        page = await server.metrics()
        assert page.total("draftwerk_device_recoveries_total") == 1, "only the target's"
        assert page.total("draftwerk_actor_restarts_total") == 0
