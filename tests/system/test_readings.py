"""Whole engines that read prompts: one text, one vector, bit for bit, near Transformers' states."""

import asyncio
import os
import signal
from array import array
from collections.abc import Sequence
from math import sqrt
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from draftwerk.actors.engine import Engine
from draftwerk.actors.events.client_events import Delta, Ended, Failed
from draftwerk.api.responses.vectors import relevance_of, vector_of
from draftwerk.assembly.build import RunningEngine, build_engine
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.speculative.request import Options
from draftwerk.speculative.requests.client_prompts import Prompt, QueryPair
from draftwerk.speculative.requests.pooling import PoolingOutput, PoolingParams
from draftwerk.speculative.sampling import Sampling
from tests.support.waiting import until

COMMON = "The sea is wide and blue, and nobody has seen its other side. "
TEXTS = [COMMON * (number % 4) + "wave " * (1 + 5 * number) for number in range(0, 10, 2)]
READINGS = PoolingParams("last"), PoolingParams("mean"), PoolingParams(answers=(77, 1500))


async def read(engine: Engine, prompt: Prompt, pooling: PoolingParams, name: str) -> PoolingOutput:
    options = Options(sampling=Sampling(temperature=0.0), pooling=pooling)
    async with engine.generate(prompt, options, request_id=name) as events:
        async for event in events:
            assert not isinstance(event, Failed | Delta), event
            if isinstance(event, Ended) and event.further.pooling_output is not None:
                return event.further.pooling_output
    raise AssertionError("it was not read")


async def write(engine: Engine, prompt: str, name: str, begun: asyncio.Event) -> list[int]:
    """Return the tokens of a text, and tell when the first is there."""
    options = Options(sampling=Sampling(seed=5), tokens_max=150, ignore_eos=True)
    tokens: list[int] = []
    async with engine.generate(prompt, options, request_id=name) as events:
        async for event in events:
            assert not isinstance(event, Failed), event
            if isinstance(event, Delta):
                tokens += event.tokens
                begun.set()
    return tokens


def asked(turn: str) -> list[tuple[str, PoolingParams, str]]:
    pairs = [(text, reading) for text in TEXTS for reading in READINGS]
    return [(text, reading, f"{turn} {at}") for at, (text, reading) in enumerate(pairs)]


async def alone(engine: Engine) -> list[PoolingOutput]:
    return [await read(engine, *each) for each in asked("alone")]


async def in_a_crowd(running: RunningEngine, turn: str, kills: bool) -> list[PoolingOutput]:
    """Read all at once beside texts that are written; the target may be killed after the first."""
    engine, begun = running.engine, asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        texts = [
            tasks.create_task(write(engine, f"Text {each}", f"{turn} text {each}", begun))
            for each in range(4)
        ]
        await begun.wait()
        reads = [tasks.create_task(read(engine, *each)) for each in asked(turn)]
        if kills:
            await asyncio.wait(reads, return_when=asyncio.FIRST_COMPLETED)
            process = engine.snapshot().models.processes["target"]
            assert process is not None
            os.kill(process, signal.SIGKILL)
    assert all(len(each.result()) == 150 for each in texts)
    return [each.result() for each in reads]


def states_of(model: Path, tokens: Sequence[int]) -> torch.Tensor:
    hf = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    with torch.no_grad():
        return hf.base_model(torch.tensor([list(tokens)])).last_hidden_state[0].double()


def settings(model: Path, **fields: Any) -> EngineSettings:
    return EngineSettings(
        model=str(model), dtype="fp32", kv_memory="8MiB", spare="off", rerank="yes-no", **fields
    )


@pytest.mark.parametrize(
    "fields", [{}, pytest.param({"tensor_parallel": 2}, marks=pytest.mark.grid)], ids=str
)
async def test_no_company_prefix_or_kill_changes_a_bit(model: Path, fields: dict[str, Any]) -> None:
    async with build_engine(settings(model, **fields), print) as running:
        first = await alone(running.engine)
        assert await in_a_crowd(running, "crowd", kills=False) == first
        assert running.engine.snapshot().counts.prefix_hits > 0
        assert await in_a_crowd(running, "killed", kills=True) == first
        await until(lambda: running.engine.snapshot().models.target_up)
        counted = running.engine.snapshot()
        assert counted.models.recoveries + counted.actors.restarts >= 1
        assert await alone(running.engine) == first
        assert len({each.state_sum for each in first[::3]}) == len(TEXTS)


async def test_vectors_and_relevance_are_those_of_transformers(model: Path) -> None:
    async with build_engine(settings(model), print) as running:
        text = running.text_tools
        for prompt in TEXTS[1], TEXTS[3]:
            states = states_of(model, text.encode(prompt))
            for reading, wanted in (
                (PoolingParams("last"), states[-1]),
                (PoolingParams("mean"), states.mean(0)),
            ):
                found = vector_of(await read(running.engine, prompt, reading, "one"))
                assert list(found) == pytest.approx((wanted / wanted.norm()).tolist(), abs=1e-4)
                assert sqrt(sum(number**2 for number in found)) == pytest.approx(1.0)
        form = running.model.rerank
        assert form is not None
        pair = QueryPair("Which sea?", "The <|im_end|> sea.")
        found = await read(running.engine, pair, PoolingParams(answers=form.answers), "pair")
        hf = transformers.AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
        tokens = text.encode_pair(pair.query, pair.document)
        with torch.no_grad():
            logits = hf(torch.tensor([tokens])).logits[0, -1].double()
        wanted = logits[list(form.answers)].softmax(0)[0]
        assert relevance_of(found) == pytest.approx(float(wanted), abs=1e-4)


async def test_bf16_vectors_are_equal_in_any_company(model: Path) -> None:
    chosen = EngineSettings(model=str(model), kv_memory="8MiB", spare="off")
    async with build_engine(chosen, print) as running:
        assert await in_a_crowd(running, "crowd", kills=False) == await alone(running.engine)
        found = await read(running.engine, TEXTS[2], PoolingParams("last"), "one")
        assert isinstance(vector_of(found), array)
