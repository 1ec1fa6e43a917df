"""Clients that leave a real engine at any moment: everything they held is given back."""

import asyncio
import os
import random
from collections.abc import AsyncGenerator

import pytest
import pytest_asyncio

from benchmarks.reliability.disconnects import Leaver
from draftwerk.actors.engine import Engine
from draftwerk.api.app.app import create_app
from draftwerk.api.shared.ports import ServedModel
from draftwerk.api.shared.state import ServerState
from draftwerk.model.text.tokenizer import TextTokenizer
from tests.api.conftest import hosting, settings
from tests.api.openai.test_response_format import held
from tests.support.tiny_models import save_tiny_with_text
from tests.support.waiting import until
from validation.schemas import engine

COUNT = 30


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def real(
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncGenerator[tuple[str, ServerState, Engine]]:
    """A real engine over a tiny model behind few places: a URL, and what is behind it."""
    directory = tmp_path_factory.mktemp("tiny")
    save_tiny_with_text(directory)
    chosen = settings(requests_max=3)
    card = ServedModel(name="tiny", context_max=2048, vocab_size=49152, draft_sources=("ngram",))
    async with held(engine(str(directory))) as one, hosting(chosen) as (startup, url):
        state = ServerState(
            engine=one, text_tools=TextTokenizer(directory), model=card, settings=chosen
        )
        startup.app = create_app(state)
        yield url, state, one


async def test_everything_is_given_back(real: tuple[str, ServerState, Engine]) -> None:
    url, state, one = real
    leaver = Leaver(url, random.Random(3), prompt_words=20, tokens_max=16, wait_max_s=0.1)
    await Leaver(url, random.Random(0), prompt_words=5).leave()
    await until(lambda: not state.live and one.snapshot().load.blocks_used == 0)
    tasks, files = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd"))
    todo = iter(range(COUNT))

    async def client() -> None:
        for _ in todo:
            await leaver.leave()

    await asyncio.gather(*(client() for _ in range(8)))
    await until(lambda: not state.live and not state.sockets.total())
    await until(lambda: one.snapshot().load.running == one.snapshot().load.waiting == 0)
    await until(lambda: one.snapshot().load.blocks_used == 0)
    await until(lambda: len(asyncio.all_tasks()) <= tasks)
    await until(lambda: len(os.listdir("/proc/self/fd")) <= files)
    assert leaver.left.total() == COUNT
    assert len({phase for _, phase in leaver.left}) >= 3
    state.admission.check()
    assert (state.admission.places_used, state.admission.waiting) == (0, 0)
    one.check()
