"""A whole server whose model processes are killed or stopped under live streams, over HTTP."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from benchmarks.reliability.kills import KillRun, KillServer, Recovery, compare, parser, started
from draftwerk.actors.devices.process import SILENCE_S
from draftwerk.speculative.scheduler import RoundLimits

pytestmark = pytest.mark.asyncio(loop_scope="module")

SERVE = ("--dtype", "fp32", "--kv-memory", "64MiB", "--stall-s", "1")

ROUND_MAX = RoundLimits().tokens_max


@dataclass(slots=True)
class Disturbed:
    """One server for all signals, and its streams' texts undisturbed."""

    server: KillServer
    words: tuple[str, ...]
    plain: KillRun

    async def by(self, *options: str) -> KillRun:
        """Return what signals did to the streams, once their texts are found unchanged."""
        arguments = parser().parse_args([*self.words, *options])
        run = await self.server.run(arguments, arguments.count)
        compare(self.plain, run)
        return run


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def disturbed(model: Path) -> AsyncGenerator[Disturbed]:
    words = ("--model", str(model), "--streams", "5", "--tokens", "160")
    arguments = parser().parse_args([*words, "--", *SERVE, "--draft", str(model)])
    async with started(arguments) as server:
        yield Disturbed(server, words, await server.run(arguments, 0))


async def test_a_killed_target_changes_no_stream(disturbed: Disturbed) -> None:
    for _ in range(5):
        run = await disturbed.by("--count", "2", "--hasty")
        restarts, recoveries = run.counted["restarts"], run.counted["recoveries"]
        assert restarts + recoveries == 2
        # Actors start anew if blocks were half copied; a round was in flight at most signals.
        if not restarts and run.counted["recomputed_tokens"]:
            break
    assert restarts == 0, "blocks are seldom half copied"
    assert 0 < run.counted["recomputed_tokens"] <= 2 * ROUND_MAX, "only rounds in flight"


async def test_a_killed_grammar_checker_costs_no_request(disturbed: Disturbed) -> None:
    run = await disturbed.by("--process", "grammar", "--count", "2")
    assert (run.counted["restarts"], run.counted["recoveries"]) == (0, 0)
    assert len(run.recoveries) == 2


async def test_a_stopped_target_is_noticed_and_replaced(disturbed: Disturbed) -> None:
    run = await disturbed.by("--signal", "STOP", "--count", "1")
    recovery: Recovery
    (recovery,) = run.recoveries
    assert recovery.unready_s is not None and recovery.unready_s < recovery.ready_s
    assert recovery.ready_s >= SILENCE_S - 1, "a slow process is not a stopped one"
