"""Model processes that are killed or stopped: their clients see a pause, and the same text."""
# ruff: noqa: ASYNC110 - what is waited for here is not announced

import os
import random
import signal
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import msgspec
import pytest
import pytest_asyncio

from draftwerk.actors.devices.child import Child, spawn
from draftwerk.actors.devices.forking import ForkServer
from draftwerk.actors.devices.process import ModelRefusedError, ProcessDevice
from draftwerk.actors.engine import Engine, running
from draftwerk.actors.events.client_events import Delta, Ended, Started
from draftwerk.actors.pipeline import EngineParts
from draftwerk.machine.child_python import python_command
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.speculative.options.all_options import all_options
from draftwerk.speculative.protocol.forks import Order
from draftwerk.speculative.request import Options
from draftwerk.speculative.rounds import Proposal, Verdict
from draftwerk.speculative.sampling import Sampling
from tests.support.shared_fork_server import fork_server
from tests.support.tiny_models import TinyWords, save_tiny

pytestmark = pytest.mark.asyncio(loop_scope="module")

BLOCKS, BLOCK_SIZE = 256, 8
STREAMS = 32
PATIENT_S = 120.0
"""No process is silent for so long, however busy the machine is."""
SILENCE_S = 3.0
"""After which a stopped process is given up."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    save_tiny(path, "llama", seed=3)
    return path


def started(forks: ForkServer, role: str, directory: Path) -> Callable[[], Awaitable[Child]]:
    """Return what starts a model process."""
    options = ModelOptions(
        source=str(directory), dtype="fp32", block_count=BLOCKS, block_size=BLOCK_SIZE
    )
    command = python_command(
        "draftwerk.model.process.worker", role, msgspec.json.encode(options).decode()
    )
    order = Order(role, msgspec.to_builtins(options), ())
    return partial(forks.spawn, order, (), partial(spawn, command))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def target(directory: Path) -> AsyncGenerator[ProcessDevice[Proposal, Verdict]]:
    """A process that outlives a test."""
    spawned = started(fork_server(), "target", directory)
    device = ProcessDevice[Proposal, Verdict](spawned, Verdict, PATIENT_S)
    try:
        yield device
    finally:
        await device.close()


@asynccontextmanager
async def serving(target: ProcessDevice[Proposal, Verdict]) -> AsyncGenerator[Engine]:
    """Run a new engine over the model's process, replaced if the test before killed it."""
    await target.revive()
    parts = EngineParts(
        options=all_options(),
        text=TinyWords(),
        target=target.fresh,
        block_count=BLOCKS,
        block_size=BLOCK_SIZE,
        context_max=200,
        stop_token_ids=(2,),
    )
    async with running(parts) as engine:
        yield engine


async def all_texts(engine: Engine) -> list[str]:
    """Return the texts of many requests at once, half of them greedy, half seeded."""
    texts = [""] * STREAMS

    async def stream(number: int) -> None:
        sampling = Sampling(temperature=float(number % 2), seed=number)
        options = Options(sampling=sampling, tokens_max=80, ignore_eos=True)
        prompt = tuple(3 + (number * 7 + n) % 90 for n in range(12))
        async with engine.generate(prompt, options, request_id=str(number)) as events:
            async for event in events:
                if isinstance(event, Started):
                    continue
                assert isinstance(event, Delta | Ended), event
                texts[number] += event.text

    async with anyio.create_task_group() as tasks:
        for number in range(STREAMS):
            tasks.start_soon(stream, number)
    return texts


async def texts_during(engine: Engine, disturbance: Callable[[], Awaitable[None]]) -> list[str]:
    """Return the texts of requests that something happens to."""
    texts: list[str] = []

    async def run_streams() -> None:
        texts.extend(await all_texts(engine))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run_streams)
        await disturbance()
    return texts


async def strike(device: ProcessDevice[Proposal, Verdict], what: signal.Signals) -> None:
    """Send a signal to the process and wait until it is given up; its successor has time."""
    victim = device.process_id
    assert victim is not None
    if what == signal.SIGSTOP:
        device.silence_s = SILENCE_S
    os.kill(victim, what)
    while device.process_id == victim:
        await anyio.sleep(0.005)
    device.silence_s = PATIENT_S


async def signal_often(
    engine: Engine, device: ProcessDevice[Proposal, Verdict], what: signal.Signals, times: int
) -> None:
    """Send a signal to the process several times, each while it works on live requests.

    A step is waited for as long as was allowed when it was sent, so that is set before any.
    """
    if what == signal.SIGSTOP:
        device.silence_s = SILENCE_S
    rng = random.Random(times)
    for _ in range(times):
        seen = engine.snapshot().counts.generated_tokens
        while engine.snapshot().counts.generated_tokens == seen or device.process_id is None:
            await anyio.sleep(0.001)
        await anyio.sleep(rng.uniform(0, 0.01))
        restarts = engine.snapshot().actors.restarts
        await strike(device, what)
        while engine.snapshot().actors.restarts == restarts:
            await anyio.sleep(0.005)


async def test_a_killed_target_is_only_a_pause(target: ProcessDevice[Proposal, Verdict]) -> None:
    async with serving(target) as engine:
        undisturbed = await all_texts(engine)
        disturbance = partial(signal_often, engine, target, signal.SIGKILL, 2)
        assert await texts_during(engine, disturbance) == undisturbed
        assert engine.snapshot().actors.restarts == 2
        engine.check()


@pytest.mark.grid
async def test_a_stopped_target_is_found_and_replaced(
    target: ProcessDevice[Proposal, Verdict],
) -> None:
    async with serving(target) as engine:
        undisturbed = await all_texts(engine)
        disturbance = partial(signal_often, engine, target, signal.SIGSTOP, 1)
        assert await texts_during(engine, disturbance) == undisturbed


async def test_a_target_that_dies_or_stops_while_idle_is_replaced_before_the_next_request(
    target: ProcessDevice[Proposal, Verdict],
) -> None:
    async with serving(target) as engine:
        for restarts, what in enumerate((signal.SIGKILL, signal.SIGSTOP), start=1):
            while not engine.snapshot().models.target_up or target.process_id is None:
                await anyio.sleep(0.01)
            await strike(target, what)
            with anyio.fail_after(300):
                while target.process_id is None or not engine.snapshot().models.target_up:
                    await anyio.sleep(0.01)
            assert engine.snapshot().actors.restarts == restarts


async def test_a_model_that_cannot_be_served_is_refused_with_a_reason(tmp_path: Path) -> None:
    device = ProcessDevice[Proposal, Verdict](started(fork_server(), "target", tmp_path), Verdict)
    with pytest.raises(ModelRefusedError, match="config"):
        await device.start()
    assert device.process_id is None
