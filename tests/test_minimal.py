"""docs/minimal.py gives the engine's tokens: drafts on and off, in company, in a tiny pool."""

import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from random import Random
from types import ModuleType

import pytest
from msgspec.structs import replace

from draftwerk.actors.engine import Engine, running
from draftwerk.actors.pipeline import EngineParts
from draftwerk.model.checkpoint import gguf
from draftwerk.model.checkpoint.model_options import ModelOptions
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.options.all_options import all_options
from draftwerk.speculative.request import Options, Speculation
from draftwerk.speculative.sampling import Sampling
from tests.support.forced_families import computed
from tests.support.runners import build_runner
from tests.support.thread_device import ThreadDevice
from tests.support.tiny_gguf import save_gguf
from tests.support.tiny_models import TinyWords
from validation.forced_drafts import Everything

ROOT = Path(__file__).parents[1]
SEEDS = range(8)
TOKENS = 24
LINES_MAX = 280
STOP = 2
"""The end token of the tiny file."""


@pytest.fixture(scope="module")
def minimal() -> ModuleType:
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        return import_module("minimal")
    finally:
        sys.path.remove(str(ROOT / "docs"))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_gguf(tmp_path_factory.mktemp("minimal") / "tiny.gguf", "llama", "F32")


@pytest.fixture(scope="module")
def runner(path: Path) -> TargetRunner:
    """Return the server's own runner of that file, which has no tokenizer."""
    options = ModelOptions(
        source=str(path), dtype="fp32", exact=True, block_count=64, block_size=16, threads=1
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf, "write_tokenizer", lambda *given: None)
        return build_runner(options)


@asynccontextmanager
async def engine(runner: TargetRunner, block_count: int) -> AsyncGenerator[Engine]:
    parts = EngineParts(
        text=TinyWords(),
        target=lambda: ThreadDevice(target_runner(runner.parts).step),
        block_count=block_count,
        block_size=16,
        context_max=block_count * 16,
        stop_token_ids=(STOP,),
        options=all_options(expects_lengths=False),
        proposer=lambda: Proposer(("ngram", "suffix", "recycle"), policy=Everything),
    )
    async with running(parts) as started:
        yield started


async def engine_tokens(
    started: Engine, prompts: Sequence[list[int]], options: Options
) -> list[list[int]]:
    """Return what the engine generates for prompts that come together."""
    texts = await computed(started, [(tuple(prompt), options) for prompt in prompts], alone=False)
    return [[token for token, _ in text] for text in texts]


def prompts_of(seed: int) -> list[list[int]]:
    """Return five prompts, of which some begin alike and all repeat themselves."""
    rng = Random(seed)
    phrase = [rng.randrange(3, 90) for _ in range(6)]
    return [phrase * rng.randint(2, 6) + phrase[:number] for number in range(5)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("temperature", [0.0, 0.8])
async def test_it_gives_the_engines_tokens(
    minimal: ModuleType, path: Path, runner: TargetRunner, seed: int, temperature: float
):
    prompts = prompts_of(seed)
    sampling = Sampling(temperature=temperature, seed=seed, stop_token_ids=(STOP,))
    model = minimal.Model(str(path), 64)

    def decoded(chosen: list[list[int]], blocks: int, drafts: bool) -> tuple[list[list[int]], int]:
        small = minimal.Engine(model, blocks)
        sequences = [minimal.Sequence(prompt, sampling, TOKENS, drafts) for prompt in chosen]
        return small.run(sequences), small.round_count

    plain, plain_rounds = decoded(prompts, 64, drafts=False)
    drafted, _ = decoded(prompts, 64, drafts=True)
    alone = [decoded([prompt], 64, drafts=True)[0][0] for prompt in prompts]
    crowded, tiny_rounds = decoded(prompts, 7, drafts=True)
    assert plain == drafted == alone == crowded
    assert plain_rounds < tiny_rounds, "some waited, or were computed again"
    for drafts in (False, True):
        options = Options(
            sampling=replace(sampling, logprobs=0),
            tokens_max=TOKENS,
            speculation=Speculation(enabled=drafts),
        )
        async with engine(runner, 64) as started:
            assert await engine_tokens(started, prompts, options) == plain
            assert [
                (await engine_tokens(started, [prompt], options))[0] for prompt in prompts
            ] == plain
        async with engine(runner, 8) as started:
            assert await engine_tokens(started, prompts, options) == plain


@pytest.mark.parametrize("right", [True, False])
def test_right_guesses_save_rounds_and_wrong_ones_no_token(
    minimal: ModuleType, path: Path, monkeypatch: pytest.MonkeyPatch, right: bool
):
    model, prompt, sampling = minimal.Model(str(path), 64), [5, 6, 7], Sampling(seed=3)

    def decoded(drafts: bool) -> tuple[list[int], int]:
        engine = minimal.Engine(model, 64)
        return engine.run([minimal.Sequence(prompt, sampling, 64, drafts)])[0], engine.round_count

    plain, plain_rounds = decoded(drafts=False)

    def propose(tokens: list[int], count: int) -> list[int]:
        answers = plain[len(tokens) - len(prompt) :][:count]
        return answers if right else [answer + 1 for answer in answers]

    monkeypatch.setattr(minimal, "propose", propose)
    drafted, rounds = decoded(drafts=True)
    assert drafted == plain
    assert plain_rounds == 64
    assert rounds == (8 if right else 64)


def test_it_can_be_read_at_once():
    assert len((ROOT / "docs/minimal.py").read_text().splitlines()) <= LINES_MAX
