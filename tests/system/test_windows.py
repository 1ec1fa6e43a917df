"""Layers with windows in blocks of their own: every text is that of a server that keeps all."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from draftwerk.actors.engine import Engine, EngineParts, running
from draftwerk.cache.kinds.window_table import WindowBlocks
from draftwerk.model.checkpoint.model_options import AttentionWindow
from draftwerk.model.process.build import ModelOptions
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.speculative.options.all_options import all_options
from draftwerk.speculative.request import Options
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import RoundLimits
from tests.support.engine_texts import texts_of
from tests.support.proposing import Recalling
from tests.support.runners import build_runner, require_kernels
from tests.support.thread_device import ThreadDevice
from tests.support.tiny_models import GEMMA4_EXPERTS, TinyWords, save_tiny

BLOCKS, BLOCK_SIZE = 400, 8
WINDOW = 17
FEW = WindowBlocks(32, WINDOW, 32)
"""So few that requests are preempted, and that most of what is cached is lost."""
LIMITS = RoundLimits(rows_max=6, tokens_max=32)
REQUESTS = 14
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "some layers": ("gemma3_text", {"sliding_window": WINDOW}),
    "all layers": ("mistral", {"sliding_window": WINDOW}),
    "narrow heads, read by other layers": ("gemma4_text", {"sliding_window": WINDOW}),
    "experts beside an FFN": ("gemma4_text", {**GEMMA4_EXPERTS, "sliding_window": WINDOW}),
    "sinks, experts": ("gpt_oss", {"sliding_window": WINDOW}),
}
NATIVE = ("native, fp32", "native, bf16", "native, int8 keys")
GATE = (
    ("some layers", "native, bf16"),
    ("some layers", "torch, tiles"),
    ("all layers", "native, fp32"),
    ("narrow heads, read by other layers", "native, int8 keys"),
    ("experts beside an FFN", "native, fp32"),
    ("sinks, experts", "native, int8 keys"),
)
"""Each family and each kind; `make test-grid` runs the others."""
GRID = [("some layers", "torch"), *(each for each in product(FAMILIES, NATIVE) if each not in GATE)]
KINDS = {
    "native, fp32": {"dtype": "fp32", "attention": "native"},
    "native, bf16": {"dtype": "bf16", "attention": "native"},
    "native, int8 keys": {"dtype": "bf16", "attention": "native", "kv_dtype": "int8"},
    "torch": {"dtype": "fp32", "attention": "reference"},
    "torch, tiles": {"dtype": "fp32", "attention": "padded", "exact": True},
}


def request(number: int) -> tuple[tuple[int, ...], Options]:
    """Return one of the requests: long beside short, alike in pairs; several choices, a search."""
    prompt = tuple(3 + (number // 2 * 7 + n) % 90 for n in range(4 + 17 * (number // 2)))
    searches = number in (6, 11)
    sampling = Sampling(temperature=float(number % 3 == 1 and not searches), seed=number)
    return prompt + (5,) * (number % 2), Options(
        sampling=sampling,
        tokens_max=6 + 3 * number,
        ignore_eos=True,
        choices=2 if number in (3, 8) else 1,
        beam_width=3 if searches else 1,
        priority=number % 2,
    )


def long_request(number: int) -> tuple[tuple[int, ...], Options]:
    """Return one whose text grows beyond what a token sees of it."""
    prompt = tuple(3 + (number // 2 * 7 + n) % 90 for n in range(300 + 60 * (number // 2)))
    _, options = request(number)
    return prompt + (5,) * (number % 2), replace(options, tokens_max=40 + 20 * number)


@asynccontextmanager
async def serving(
    options: ModelOptions,
    windows: WindowBlocks,
    context_max: int = 1000,
    limits: RoundLimits = LIMITS,
) -> AsyncGenerator[Engine]:
    runner = build_runner(replace(options, window_blocks=windows.count))
    assert (runner.pages.window is not None) == bool(windows.count)
    parts = EngineParts(
        options=all_options(),
        text=TinyWords(),
        target=lambda: ThreadDevice(target_runner(runner.parts, 8).step),
        proposer=Recalling,
        block_count=options.block_count,
        block_size=BLOCK_SIZE,
        kinds=(windows.kind,),
        context_max=context_max,
        stop_token_ids=(2,),
        limits=limits,
    )
    async with running(parts) as engine:
        yield engine


@pytest.mark.parametrize(
    ("family", "kind"),
    [*GATE, *(pytest.param(*each, marks=pytest.mark.grid) for each in GRID)],
)
async def test_texts_are_those_of_a_server_that_keeps_all(
    family: str, kind: str, tmp_path: Path
) -> None:
    if kind.startswith("native"):
        require_kernels()
    name, changes = FAMILIES[family]
    save_tiny(tmp_path, name, 3, **changes)
    options = ModelOptions(
        source=str(tmp_path),
        block_count=BLOCKS,
        block_size=BLOCK_SIZE,
        measures=False,
        **KINDS[kind],  # pyright: ignore[reportArgumentType]
    )
    async with serving(options, WindowBlocks()) as engine:
        want = await texts_of(engine, request, REQUESTS)
    async with serving(options, FEW) as engine:
        assert await texts_of(engine, request, REQUESTS) == want
        assert (
            await texts_of(engine, request, REQUESTS) == want
        )  # what is left in the cache is another
        engine.check()
        snapshot = engine.snapshot()
    assert snapshot.actors.restarts == 0
    assert snapshot.counts.prefix_hits > 0
    assert snapshot.counts.accepted_tokens > 20


@pytest.mark.parametrize(
    "kind", [pytest.param("native, fp32", marks=pytest.mark.grid), "native, int8 keys"]
)
async def test_texts_under_a_window_are_those_of_a_server_that_keeps_all(
    kind: str, tmp_path: Path
) -> None:
    require_kernels()
    save_tiny(tmp_path, "llama", 3)
    options = ModelOptions(
        source=str(tmp_path),
        block_count=BLOCKS,
        block_size=BLOCK_SIZE,
        window=AttentionWindow(256, 128),
        measures=False,
        **KINDS[kind],  # pyright: ignore[reportArgumentType]
    )
    async with serving(options, WindowBlocks()) as engine:
        want = await texts_of(engine, long_request, 8)
    async with serving(options, WindowBlocks(160, 256, 32, 128 // BLOCK_SIZE)) as engine:
        assert await texts_of(engine, long_request, 8) == want
        assert await texts_of(engine, long_request, 8) == want
        engine.check()
        snapshot = engine.snapshot()
    assert snapshot.actors.restarts == 0
    assert snapshot.counts.prefix_hits > 0


async def test_a_session_of_100_000_tokens_goes_on_in_4096_slots(tmp_path: Path) -> None:
    require_kernels()
    save_tiny(tmp_path, "llama", 3)
    window, turns, turn = AttentionWindow(1024, 128), 5, 20_000
    windows = WindowBlocks(4096 // BLOCK_SIZE, window.size, 1024, window.kept // BLOCK_SIZE)
    options = ModelOptions(
        source=str(tmp_path),
        block_count=turns * turn // BLOCK_SIZE + 100,
        block_size=BLOCK_SIZE,
        window=window,
        measures=False,
        dtype="bf16",
        attention="native",
        kv_dtype="int8",
    )
    asked = Options(sampling=Sampling(temperature=0.0), tokens_max=8, ignore_eos=True)
    limits = RoundLimits(rows_max=2, tokens_max=512)
    context_max, said = turns * turn + 100, [3 + n * n % 90 for n in range(turns * turn)]
    async with serving(options, windows, context_max, limits) as engine:
        for number in range(1, turns + 1):
            prompt = tuple(said[: number * turn])
            (text,) = await texts_of(engine, lambda _, known=prompt: (known, asked), 1)
            assert text.count("w") == 8
        engine.check()
        counts = engine.snapshot().counts
    assert engine.snapshot().actors.restarts == 0
    read = sum(range(turn, turns * turn + 1, turn)) - counts.prefix_hits
    assert read < turns * (turn + 2 * BLOCK_SIZE), "a turn reads what is new, and no more"
