"""Engines over one folder of kept blocks: restarts and damage change no text."""

import random
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from draftwerk import AsyncLLM, SamplingParams

pytestmark = pytest.mark.asyncio(loop_scope="module")

PROMPTS = [f"{number} tell me of " + "the sea and the land " * 6 for number in range(4)]


def fields_of(number: int) -> dict[str, Any]:
    """Return how the prompt of a number is continued."""
    return {"max_tokens": 24, "temperature": number % 2, "seed": number, "ignore_eos": True}


async def texts_of(llm: AsyncLLM) -> list[str]:
    return [
        (await llm.generate(prompt, SamplingParams(**fields_of(number)))).text
        for number, prompt in enumerate(PROMPTS)
    ]


def counted(llm: AsyncLLM, what: str) -> float:
    """Return a counter of an engine's second tier."""
    return llm.snapshot().store[what]


def records(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.kv"))


def damage(paths: list[Path]) -> None:
    """Flip a bit, cut, overwrite, or spare each record."""
    rng = random.Random(1)
    for path in paths:
        data = bytearray(path.read_bytes())
        match rng.randrange(4):
            case 0:
                data[rng.randrange(len(data))] ^= 1
            case 1:
                del data[rng.randrange(len(data)) :]
            case 2:
                data[:] = rng.randbytes(len(data))
            case _:
                continue
        path.write_bytes(data)


def storing(model: Path, **settings: Any) -> AsyncLLM:
    """Return an engine whose cache is small; `settings` say where it keeps blocks."""
    return AsyncLLM(model, dtype="fp32", kv_memory="8MiB", **settings)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain(model: Path) -> list[str]:
    async with storing(model) as llm:
        return await texts_of(llm)


async def test_a_restart_finds_what_was_kept_and_damage_is_a_miss(
    model: Path, plain: list[str], tmp_path: Path
) -> None:
    async with storing(model, kv_store=str(tmp_path)) as llm:
        assert await texts_of(llm) == plain
    assert len(records(tmp_path)) > len(PROMPTS)
    async with storing(model, kv_store=str(tmp_path)) as llm:
        assert await texts_of(llm) == plain
        assert counted(llm, "hits") > 0
        assert llm.snapshot().counts.prefix_hits > 0
        assert counted(llm, "refused") == 0
    damage(records(tmp_path))
    async with storing(model, kv_store=str(tmp_path)) as llm:
        assert await texts_of(llm) == plain
        assert counted(llm, "refused") > 0
        assert llm.snapshot().actors.restarts == 0


async def test_two_engines_and_a_small_bound_share_a_folder(
    model: Path, plain: list[str], tmp_path: Path
) -> None:
    settings = {"kv_store": str(tmp_path), "kv_store_size": "64KiB"}
    async with storing(model, **settings) as one, storing(model, **settings) as two:
        for _ in range(2):
            assert await texts_of(one) == plain
            assert await texts_of(two) == plain
        for path in records(tmp_path)[::2]:
            path.unlink(missing_ok=True)
        assert await texts_of(one) == await texts_of(two) == plain
    assert sum(path.stat().st_size for path in records(tmp_path)) <= 64 * 1024
