"""The whole engine over the default model: one seed gives one text, whatever happens around it."""

from functools import cache

import pytest

from draftwerk.actors.engine import Engine
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import ModelInfo, read_info
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling import Sampling
from tests.support.default_engine import BLOCK_SIZE, answers, engine
from tests.support.runners import build_runner

QUESTIONS = (
    "Count from one to twelve in words.",
    "Write the word tea ten times.",
    "List the days of the week, twice.",
    "Name three rivers and say where they flow.",
    "Repeat after me: the cat sat on the mat, the cat sat on the mat.",
    "What is two plus two? Explain in one sentence.",
)
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


async def texts(
    running_engine: Engine, sampling: Sampling, *, drafts: bool, at_once: bool
) -> list[list[str]]:
    """Return the answers to all questions."""
    options = Options(sampling=sampling, tokens_max=18, speculation=Speculation(enabled=drafts))
    return await answers(running_engine, QUESTIONS, options, at_once=at_once)


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
    async with engine(built(dtype), card(), 512) as roomy:
        plain = await texts(roomy, sampling, drafts=False, at_once=False)
        assert await texts(roomy, sampling, drafts=True, at_once=False) == plain
        assert await texts(roomy, sampling, drafts=True, at_once=True) == plain
        snapshot = roomy.snapshot()
        assert snapshot.counts.preemptions == 0
        assert snapshot.counts.prefix_hits > 0
        assert 0 < snapshot.counts.accepted_tokens < snapshot.counts.draft_tokens
        assert snapshot.counts.accepted_by_source["head"] > 0
    async with engine(built(dtype), card(), 13) as tight:
        assert await texts(tight, sampling, drafts=True, at_once=True) == plain
        assert await texts(tight, sampling, drafts=False, at_once=True) == plain
        snapshot = tight.snapshot()
        assert snapshot.counts.preemptions > 0
        assert snapshot.counts.prefix_hits > 0
        assert 0 < snapshot.counts.accepted_tokens < snapshot.counts.draft_tokens
        tight.check()
