"""A whole server whose model processes are killed or stopped under live streams, over HTTP."""

from pathlib import Path

import pytest

from benchmarks.reliability.kills import experiment, parser
from tests.support.tiny_models import save_tiny_with_text

SERVE = ("--dtype", "fp32", "--kv-memory", "64MiB")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tiny")
    save_tiny_with_text(path, seed=3)
    return path


async def found(directory: Path, *options: str, serve: tuple[str, ...] = ()) -> dict[str, object]:
    """Return what the experiment measured; it compares every text itself."""
    words = ["--model", str(directory), "--streams", "8", "--tokens", "200", *options]
    return await experiment(parser().parse_args([*words, "--", *SERVE, *serve]))


async def test_a_killed_target_changes_no_stream(directory: Path) -> None:
    report = await found(directory, "--count", "2")
    disturbed = report["disturbed"]
    assert isinstance(disturbed, dict)
    assert disturbed["restarts"] == 2
    assert disturbed["recomputed_tokens"] > 0


async def test_a_killed_draft_model_stops_no_round(directory: Path) -> None:
    report = await found(directory, "--process", "draft", "--count", "1")
    disturbed, recoveries = report["disturbed"], report["recoveries"]
    assert isinstance(disturbed, dict) and isinstance(recoveries, list)
    assert disturbed["restarts"] == 0
    assert all(one["token_s"] < one["ready_s"] for one in recoveries), "text flows without it"


async def test_a_stopped_target_is_noticed_and_replaced(directory: Path) -> None:
    serve = ("--silence-s", "4", "--stall-s", "1")
    report = await found(directory, "--signal", "STOP", "--count", "1", serve=serve)
    recoveries = report["recoveries"]
    assert isinstance(recoveries, list)
    (recovery,) = recoveries
    assert recovery["unready_s"] is not None and recovery["unready_s"] < recovery["ready_s"]
    assert recovery["ready_s"] >= 3, "a slow process is not a stopped one"
