"""The whole engine over the default model: one seed gives one text, whatever happens around it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import anyio
import pytest

from draftwerk.actors.client_prompts import Chat, ChatMessage
from draftwerk.actors.engine import Engine, running
from draftwerk.actors.engine_parts import EngineParts
from draftwerk.actors.messages import Delta, Ended, Started
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import ModelInfo, read_info
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.model.text.tokenizer import TextTokenizer
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.requests.request import Options, Speculation
from draftwerk.speculative.sampling.params import Sampling
from draftwerk.speculative.scheduler.scheduler import RoundLimits
from tests.support.runners import build_runner
from tests.support.thread_device import ThreadDevice
from validation.forced_drafts import Everything

RULES = "You are a careful assistant who answers in short sentences and repeats the question first."
QUESTIONS = (
    "Count from one to twelve in words.",
    "Write the word tea ten times.",
    "List the days of the week, twice.",
    "Name three rivers and say where they flow.",
    "Repeat after me: the cat sat on the mat, the cat sat on the mat.",
    "What is two plus two? Explain in one sentence.",
)
BLOCK_SIZE = 16
SOURCES = ("ngram", "suffix", "recycle", "head")
SUCCESSORS = 16
GRID = ((0.0, "bf16"), (0.8, "stored"), (0.0, "fp32"), (0.8, "fp32"))
"""What only `make test-grid` runs: tests/system/test_matrix.py has fp32 over a tiny model."""


@cache
def card() -> ModelInfo:
    return read_info(locate(None))


@cache
def built(dtype: str) -> TargetRunner:
    return build_runner(
        ModelOptions(
            dtype=dtype,
            exact=True,
            draft_head="auto",
            block_count=512,
            block_size=BLOCK_SIZE,
            threads=1 if dtype == "fp32" else 0,
        )
    )


def fresh(dtype: str) -> Callable[[], ThreadDevice]:
    """Return a factory of devices without any sequence, over weights that are read once."""
    runner = built(dtype)
    return lambda: ThreadDevice(TargetRunner(runner.parts, SUCCESSORS).step)


@asynccontextmanager
async def engine(dtype: str, block_count: int) -> AsyncGenerator[Engine]:
    async with running(
        EngineParts(
            text=TextTokenizer(Path(card().directory)),
            target=fresh(dtype),
            block_count=block_count,
            block_size=BLOCK_SIZE,
            context_max=card().context_max,
            stop_token_ids=card().eos_token_ids,
            limits=RoundLimits(rows_max=8, tokens_max=96),
            expects_lengths=False,  # preemptions are wanted
            # Whether drafts are worth their cost depends on the machine, so none is asked.
            proposer=lambda: Proposer(SOURCES, policy=Everything()),
        )
    ) as one:
        yield one


async def texts(
    running_engine: Engine, sampling: Sampling, *, drafts: bool, at_once: bool
) -> list[str]:
    """Return the answers to all questions, asked at once or in turn."""
    answers = [""] * len(QUESTIONS)

    async def ask(number: int) -> None:
        prompt = Chat((ChatMessage("system", RULES), ChatMessage("user", QUESTIONS[number])))
        options = Options(sampling=sampling, tokens_max=18, speculation=Speculation(enabled=drafts))
        async with running_engine.generate(prompt, options, request_id=str(number)) as events:
            async for event in events:
                if isinstance(event, Started):
                    continue
                assert isinstance(event, Delta | Ended)
                answers[number] += event.text

    if at_once:
        async with anyio.create_task_group() as tasks:
            for number in range(len(QUESTIONS)):
                tasks.start_soon(ask, number)
    else:
        for number in range(len(QUESTIONS)):
            await ask(number)
    return answers


@pytest.mark.parametrize(
    ("temperature", "dtype"),
    [
        (0.8, "bf16"),
        (0.0, "stored"),
        *(pytest.param(*each, marks=pytest.mark.grid) for each in GRID),
    ],
)
async def test_one_seed_gives_one_text(dtype: str, temperature: float) -> None:
    """Drafts or none, alone or among six, in a roomy pool or under preemption: byte for byte."""
    sampling = Sampling(temperature=temperature, top_p=0.95, seed=2026)
    async with engine(dtype, 512) as roomy:
        plain = await texts(roomy, sampling, drafts=False, at_once=False)
        assert await texts(roomy, sampling, drafts=True, at_once=False) == plain
        assert await texts(roomy, sampling, drafts=True, at_once=True) == plain
        snapshot = roomy.snapshot()
        assert snapshot.counts.preemptions == 0
        assert snapshot.counts.prefix_hits > 0
        assert 0 < snapshot.counts.accepted_tokens < snapshot.counts.draft_tokens
        assert snapshot.counts.accepted_by_source["head"] > 0
    async with engine(dtype, 13) as tight:
        assert await texts(tight, sampling, drafts=True, at_once=True) == plain
        assert await texts(tight, sampling, drafts=False, at_once=True) == plain
        snapshot = tight.snapshot()
        assert snapshot.counts.preemptions > 0
        assert snapshot.counts.prefix_hits > 0
        assert 0 < snapshot.counts.accepted_tokens < snapshot.counts.draft_tokens
        tight.check()
