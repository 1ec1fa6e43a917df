"""Every type of a GGUF, written from the default model: one seed gives one text, whatever happens.

The gate runs one mix of many types; `make test-grid` the others.
"""

from functools import partial
from pathlib import Path

import pytest

from draftwerk.actors.engine import Engine
from draftwerk.assembly.build import build_engine
from draftwerk.model.checkpoint.hub import locate
from draftwerk.model.checkpoint.info import ModelInfo, read_info
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.checkpoint.stored_matrix import GGUF_KINDS
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.settings.engine_settings import EngineSettings
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling import Sampling
from draftwerk_tools.quantising.gguf_output import write_quantised
from draftwerk_tools.quantising.sources import open_source
from tests.support.default_engine import BLOCK_SIZE, answers, engine
from tests.support.engine_texts import though_killed
from tests.support.runners import build_runner

TRIES = 4
"""Of crowds in few blocks: whether one is preempted depends on when requests arrive."""
QUESTIONS = (
    "Count from one to twelve in words.",
    "List the days of the week, twice.",
    "Repeat after me: the cat sat on the mat, the cat sat on the mat.",
    "Write a line about rain and repeat it three times.",
)
GATE = "Q4_K_M"
"""Q4_K, Q6_K, Q5_0 and Q8_0 in one file of the default model."""
MIXES_OF_KINDS = {
    "Q4_0": {"Q4_0", "Q8_0"},
    "Q4_1": {"Q4_1", "Q8_0"},
    "Q5_1": {"Q5_1", "Q8_0"},
    "IQ4_XS": {"IQ4_XS", "IQ4_NL", "Q5_K", "Q8_0"},
    "MXFP4": {"MXFP4", "Q8_0"},
    "Q3_K_S": {"Q3_K", "IQ4_NL", "Q8_0"},
    "Q2_K": {"Q3_K", "IQ4_NL", "Q8_0"},
    GATE: {"Q4_K", "Q6_K", "Q5_0", "Q8_0"},
}
"""Mixes that together hold every type that fits this model's widths, and their types."""
MIXES = [pytest.param(mix, marks=() if mix == GATE else pytest.mark.grid) for mix in MIXES_OF_KINDS]


@pytest.fixture(scope="module", params=MIXES)
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of the default model in a mix."""
    found = tmp_path_factory.mktemp("types") / f"{request.param}.gguf"
    write_quantised(open_source(locate(None)), request.param, found, lambda _: None)
    return found


@pytest.fixture(scope="module")
def card(path: Path) -> ModelInfo:
    return read_info(locate(str(path)))


@pytest.fixture(scope="module")
def runner(path: Path) -> TargetRunner:
    options = ModelOptions(
        source=str(path),
        dtype="stored",
        exact=True,
        draft_head="auto",
        block_count=512,
        block_size=BLOCK_SIZE,
    )
    return build_runner(options)


async def texts(
    running_engine: Engine, *, drafts: bool, at_once: bool, beams: int = 1
) -> list[list[str]]:
    """Return the choices of every question."""
    options = Options(
        sampling=Sampling(temperature=0.0 if beams > 1 else 0.8, top_p=1.0, seed=2026),
        tokens_max=24,
        choices=beams,
        beam_width=beams,
        speculation=Speculation(enabled=drafts),
    )
    return await answers(running_engine, QUESTIONS, options, at_once=at_once)


def test_mixes_hold_every_type_that_is_served() -> None:
    held = set().union(*MIXES_OF_KINDS.values())
    plain = {"F32", "F16", "BF16"}
    assert held == GGUF_KINDS.keys() - plain - {"Q2_K"}, (
        "ffn_down, the one width of 256, is Q3_K in Q2_K"
    )


def test_a_file_has_the_types_of_its_mix(path: Path, card: ModelInfo) -> None:
    assert card.stored_format == "stored"
    assert card.stored_kinds.keys() == MIXES_OF_KINDS[path.stem]


async def test_drafts_prefixes_and_preemption_change_no_text(
    runner: TargetRunner, card: ModelInfo
) -> None:
    async with engine(runner, card, 512) as roomy:
        plain = await texts(roomy, drafts=False, at_once=False)
        assert await texts(roomy, drafts=True, at_once=False) == plain
        assert await texts(roomy, drafts=True, at_once=True) == plain
        snapshot = roomy.snapshot()
        assert snapshot.counts.prefix_hits > 0
        assert 0 < snapshot.counts.accepted_tokens < snapshot.counts.draft_tokens
        assert snapshot.counts.accepted_by_source["head"] > 0
    preemptions = 0
    for _ in range(TRIES):
        async with engine(runner, card, 6) as tight:
            assert await texts(tight, drafts=True, at_once=True) == plain
            preemptions += tight.snapshot().counts.preemptions
            tight.check()
        if preemptions:
            break
    assert preemptions > 0


async def test_beams_are_the_same_with_drafts(runner: TargetRunner, card: ModelInfo) -> None:
    async with engine(runner, card, 512) as roomy:
        plain = await texts(roomy, drafts=False, at_once=False, beams=3)
        assert await texts(roomy, drafts=True, at_once=True, beams=3) == plain
        assert len({text for choices in plain for text in choices}) == 3 * len(QUESTIONS)


@pytest.mark.grid
async def test_a_killed_model_process_changes_no_text(path: Path) -> None:
    settings = EngineSettings(model=str(path), kv_memory="128MiB", spare="off")
    async with build_engine(settings, print) as found:
        ask = partial(texts, found.engine, drafts=True, at_once=True)
        plain = await ask()
        assert await though_killed(found.engine, ask) == plain
        assert found.engine.snapshot().models.recoveries == 1
