"""A model process with two rounds under way: the texts of one at a time, killed, idle or not."""

import os
import signal
import sys
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
import pytest_asyncio

from draftwerk.actors.devices.child import spawn
from draftwerk.actors.devices.process import ProcessDevice
from draftwerk.actors.engine import Engine, running
from draftwerk.actors.pipeline import EngineParts
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.options.all_options import all_options
from draftwerk.speculative.request import Options
from draftwerk.speculative.rounds import Proposal, Verdict
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import RoundLimits
from draftwerk.speculative.sources.registry import WITHOUT_MODEL
from tests.support.asking_process import asking_command
from tests.support.engine_texts import texts_of
from tests.support.runners import build_runner
from tests.support.thread_device import ThreadDevice
from tests.support.tiny_models import TinyWords, save_tiny
from tests.support.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

BLOCKS, BLOCK_SIZE = 24, 8
"""So few that some requests are preempted."""
REQUESTS = 14
TARGET = ProcessDevice[Proposal, Verdict]
UNSOUND = """
import sys
from draftwerk.model.process import worker
from draftwerk.model.step.target_runner import TargetRunner

def lose(self):
    self.cached_sequences.sequences.clear()
    return {}

TargetRunner.known_counts = lose
worker.CHECK_S = 0.3
worker.main(*sys.argv[1:])
"""
"""A model process that loses its sequences while it has no work."""
LIMITS = RoundLimits(rows_max=6, tokens_max=64)
SILENCE_S = 3.0
"""After which a stopped process is given up."""


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> ModelOptions:
    path: Path = tmp_path_factory.mktemp("tiny")
    save_tiny(path, "llama", seed=3)
    return ModelOptions(
        source=str(path), dtype="fp32", block_count=BLOCKS, block_size=BLOCK_SIZE, measures=False
    )


def words_of(options: ModelOptions) -> str:
    """Return the options of a process that drafts by itself, from any text."""
    drafts = msgspec.structs.replace(options, sources=WITHOUT_MODEL, successor_count=8)
    return msgspec.json.encode(drafts).decode()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target(options: ModelOptions) -> AsyncGenerator[TARGET]:
    command = asking_command("", "target", words_of(options))
    made = TARGET(partial(spawn, command), Verdict, 60.0)
    try:
        yield made
    finally:
        await made.close()


def parts(**own: Any) -> EngineParts:
    return EngineParts(
        options=all_options(),
        text=TinyWords(),
        block_count=BLOCKS,
        block_size=BLOCK_SIZE,
        context_max=120,
        stop_token_ids=(2,),
        **own,
    )


def ahead(target: TARGET) -> EngineParts:
    limits = msgspec.structs.replace(LIMITS, pipeline_depth=2, run_ahead=True)
    return parts(target=target.fresh, proposer=lambda: None, limits=limits)


async def plain_texts(options: ModelOptions) -> list[str]:
    """Return what an engine without drafts writes, one round at a time."""
    runner = build_runner(options)
    plain = parts(
        target=lambda: ThreadDevice(target_runner(runner.parts).step),
        proposer=lambda: Proposer(()),
        limits=LIMITS,
    )
    async with running(plain) as engine:
        return await texts_of(engine, request, REQUESTS)


def request(number: int) -> tuple[tuple[int, ...], Options]:
    """Return one of the requests: greedy, seeded, penalised, stopped by a string, or a search."""
    prompt = tuple(3 + (number * 7 + n) % (5 if number % 2 else 90) for n in range(4 + 3 * number))
    searches = number == 6
    sampling = Sampling(
        temperature=float(number % 3 == 1),
        seed=number,
        frequency_penalty=0.0 if searches else 0.5 * (number % 4 == 2),
        logprobs=0 if number % 5 == 1 and not searches else -1,
    )
    return prompt, Options(
        sampling=sampling,
        tokens_max=1 + 4 * number,
        ignore_eos=number % 2 == 0,
        stop=("w7",) if number % 5 == 4 else (),
        choices=2 if number == 3 else 1,
        beam_width=3 if searches else 1,
        priority=number % 2,
    )


async def test_texts_are_those_of_one_round_at_a_time(
    target: TARGET, options: ModelOptions
) -> None:
    want = await plain_texts(options)
    async with running(ahead(target)) as engine:
        assert await texts_of(engine, request, REQUESTS) == want
        engine.check()
        snapshot = engine.snapshot()
    assert snapshot.actors.restarts == 0
    assert snapshot.counts.accepted_tokens > 0, "the process has drafted"

    async with running(ahead(target)) as engine:  # the same process, and what it knew is dropped

        async def kill() -> None:
            await until(lambda: engine.snapshot().counts.generated_tokens >= 20)
            assert target.process_id is not None
            os.kill(target.process_id, signal.SIGKILL)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(kill)
            assert await texts_of(engine, request, REQUESTS) == want
        assert engine.snapshot().actors.restarts == 1


async def test_a_process_that_fails_its_own_check_is_replaced(options: ModelOptions) -> None:
    want = await plain_texts(options)
    command = (sys.executable, "-P", "-c", UNSOUND, "target", words_of(options))
    target = TARGET(partial(spawn, command), Verdict, 60.0)
    try:
        async with running(ahead(target)) as engine:
            await until(lambda: target.process_id is not None)
            first = target.process_id
            assert await texts_of(engine, request, REQUESTS) == want
            await until(lambda: engine.snapshot().actors.restarts > 0)
            await until(lambda: engine.snapshot().models.target_up)
            assert target.process_id != first
            assert await texts_of(engine, request, REQUESTS) == want
    finally:
        await target.close()


async def test_one_that_dies_or_stops_while_idle_is_replaced_before_the_next_request(
    target: TARGET,
) -> None:
    def is_up(engine: Engine) -> bool:
        return target.process_id is not None and engine.snapshot().models.target_up

    await target.revive()
    async with running(ahead(target)) as engine:
        for restarts, what in enumerate((signal.SIGKILL, signal.SIGSTOP), start=1):
            await until(lambda: is_up(engine))
            victim, patient_s = target.process_id, target.silence_s
            assert victim is not None
            if what == signal.SIGSTOP:
                target.silence_s = SILENCE_S
            os.kill(victim, what)
            await until(lambda gone=victim: target.process_id != gone)
            target.silence_s = patient_s  # its successor has time
            await until(lambda: is_up(engine))
            assert engine.snapshot().actors.restarts == restarts
