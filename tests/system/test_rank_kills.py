"""A server whose target is divided, under live streams: a rank's death is a device's death."""

from pathlib import Path

import pytest

from benchmarks.reliability.kills import compare, parser, started
from tests.support.tiny_models import save_tiny_with_text

SERVE = ("--dtype", "fp32", "--kv-memory", "64MiB", "--spare", "off")


@pytest.mark.asyncio
async def test_a_killed_rank_changes_no_stream(tmp_path: Path) -> None:
    save_tiny_with_text(tmp_path, seed=3)
    words = ("--model", str(tmp_path), "--streams", "5", "--tokens", "120")
    asked = parser().parse_args(
        [*words, "--process", "rank 1", "--hasty", "--", *SERVE, "--tensor-parallel", "2"]
    )
    async with started(asked) as server:
        plain = await server.run(asked, 0)
        run = await server.run(asked, 1)
    compare(plain, run)
    assert (run.counted["restarts"], run.counted["recoveries"]) == (0, 1)
