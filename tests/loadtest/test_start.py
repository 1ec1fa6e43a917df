"""What must work before anything is sent: help, reports, and the command of the server."""

import subprocess
import sys
from pathlib import Path

import pytest

from draftwerk.__main__ import main as draftwerk
from draftwerk_tools.loadtest.__main__ import main
from tests.loadtest.stub import Manner, stub

ROOT = Path(__file__).parents[2]
WITHOUT_AIOHTTP = (
    "import sys; sys.modules['aiohttp'] = None; "
    "from draftwerk_tools.loadtest.__main__ import main; sys.exit(main(sys.argv[1:]))"
)


def without_aiohttp(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT_AIOHTTP, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.fixture
def result(tmp_path: Path) -> Path:
    path = tmp_path / "run.json"
    with stub(Manner(first_s=0.01, gap_s=0.01, chunks=2)) as server:
        words = [server.url, "--requests", "2", "--no-progress", "--output", str(path)]
        assert main(["run", *words]) == 0
    return path


@pytest.mark.parametrize(
    "command", [[], ["run"], ["sweep"], ["search"], ["throughput"], ["report"]]
)
def test_help_needs_no_http_client(command: list[str]) -> None:
    done = without_aiohttp(*command, "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "draftwerk loadtest" in done.stdout


def test_a_report_and_a_comparison_need_no_http_client(result: Path) -> None:
    assert without_aiohttp("report", str(result)).returncode == 0
    assert "<svg" in result.with_suffix(".html").read_text()
    assert "output tok/s" in without_aiohttp("compare", str(result), str(result)).stdout


def test_a_load_without_the_http_client_is_one_line() -> None:
    done = without_aiohttp("run", "127.0.0.1:9")
    assert done.returncode == 2
    assert done.stderr == "loadtest: aiohttp is not installed: pip install aiohttp\n"


def test_the_servers_command_runs_load_tests(
    result: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert draftwerk(["loadtest", "compare", str(result), str(result)]) == 0
    assert "same text: 2 of 2" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        draftwerk(["--help"])
    assert "loadtest" in capsys.readouterr().out
