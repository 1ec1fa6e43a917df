"""The command line, from arguments to files."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from draftwerk_tools.loadtest.__main__ import main, parser
from draftwerk_tools.loadtest.client.loads import WARM_TOKENS
from draftwerk_tools.loadtest.results.result import Run, Sweep, read_result
from tests.loadtest.stub import Manner, Served, Stub, stub
from tests.support.waiting import DEADLINE_S, wait_until

ROOT = Path(__file__).parents[2]
QUICK = Manner(first_s=0.03, gap_s=0.01, chunks=3)


def result_of(path: Path, kind: type[Run] | type[Sweep]) -> Any:
    result = read_result(path)
    assert isinstance(result, kind)
    return result


def measured(server: Stub) -> list[Served]:
    """Return what was served after a sweep's warm-up."""
    return [one for one in server.served if one.body["max_tokens"] != WARM_TOKENS]


def test_run_leaves_json_csv_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = {kind: str(tmp_path / f"out.{kind}") for kind in ("json", "csv", "html")}
    files = ["--output", out["json"], "--csv", out["csv"], "--html", out["html"]]
    with stub(QUICK) as server:
        argv = ["run", server.url, "--requests", "4", "--slo", "e2e=60s", "--no-progress", *files]
        assert main(argv) == 0
    shown = capsys.readouterr().out
    assert "TTFT" in shown and "goodput      100.0%" in shown
    result = result_of(tmp_path / "out.json", Run)
    assert result.environment.argv == argv
    assert result.environment.models == ["stub"]
    assert result.options.requests == 4 and len(result.rows) == 4
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 5
    assert main(["report", out["json"], "--html", str(tmp_path / "again.html")]) == 0
    assert (tmp_path / "again.html").read_text() == (tmp_path / "out.html").read_text()
    assert main(["compare", out["json"], out["json"]]) == 0
    assert "same text: 4 of 4" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("sent", "inherited"),
    [
        (signal.SIGINT, signal.SIG_DFL),
        (signal.SIGINT, signal.SIG_IGN),
        (signal.SIGTERM, signal.SIG_DFL),
    ],
)
def test_ctrl_c_keeps_what_was_measured(
    tmp_path: Path, sent: signal.Signals, inherited: signal.Handlers
) -> None:
    """Also where a script has put the load test in the background, and interrupts are ignored."""
    path = tmp_path / "cut.json"
    with stub(QUICK) as server:
        asked = ["run", server.url, "--duration-s", "60", "--no-progress", "--output", str(path)]
        before = signal.signal(signal.SIGINT, inherited)
        process = subprocess.Popen(
            [sys.executable, "-m", "draftwerk_tools.loadtest", *asked], cwd=ROOT
        )
        signal.signal(signal.SIGINT, before)
        wait_until(lambda: len(server.served) > 5)
        process.send_signal(sent)
        assert process.wait(DEADLINE_S) == 0
    run = result_of(path, Run)
    assert run.interrupted and len(run.rows) >= 4
    assert run.summary.outcomes == {"ok": len(run.rows)}


def test_progress_ends_with_a_line_even_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    with stub(QUICK) as server:
        main(["run", server.url, "--requests", "2"])
    assert "2/2 done  0 in flight  0 not ok" in capsys.readouterr().err


def test_sweep_visits_every_load_and_variant(tmp_path: Path) -> None:
    path = tmp_path / "sweep.json"
    variants = ["--variant", "on={}", "--variant", 'off={"speculation": {"enabled": false}}']
    with stub(QUICK) as server:
        sizes = ["--loads", "1,2,4", "--requests", "2", "--waves", "1", "--no-progress"]
        assert main(["sweep", server.url, *sizes, *variants, "--output", str(path)]) == 0
    sweep = result_of(path, Sweep)
    assert [(run.label, run.load) for run in sweep.runs] == [
        (name, load) for load in (1.0, 2.0, 4.0) for name in ("on", "off")
    ]
    assert [len(run.rows) for run in sweep.runs] == [2, 2, 2, 2, 4, 4]
    assert set(sweep.knees) == {"on", "off"}
    served = measured(server)
    sent = [one.body.get("speculation") for one in served]
    assert sent.count({"enabled": False}) == sent.count(None) == 8


def test_a_sweep_sends_all_of_a_file_before_anything_comes_again(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(f'{{"prompt": "question {n}"}}\n' for n in range(12)))
    with stub(QUICK) as server:
        sizes = ["--loads", "1,2", "--requests", "3", "--waves", "1", "--repeats", "2"]
        main(["sweep", server.url, *sizes, "--workload", f"jsonl:{prompts}", "--no-progress"])
    asked = [one.body["messages"][0]["content"] for one in measured(server)]
    assert len(asked) == len(set(asked)) == 12


def test_search_stops_at_its_upper_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "found.json"
    with stub(QUICK) as server:
        bounds = ["--over", "concurrency", "--high", "2", "--requests", "12", "--attain", "0.5"]
        slo = ["--slo", "e2e=60s", "--no-progress", "--output", str(path)]
        assert main(["search", server.url, *bounds, *slo]) == 0
    assert result_of(path, Sweep).held == 2
    assert "highest concurrency that holds: 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "complaint"),
    [
        (["run", "127.0.0.1:9", "--requests", "0"], "--requests: expected `int` >= 1"),
        (["run", "127.0.0.1:9", "--endpoint", "telnet"], "--endpoint"),
        (["run", "http://", "--no-progress"], "'http://' is no URL"),
        (["run", "ftp://127.0.0.1:9", "--no-progress"], "'ftp://127.0.0.1:9' is no URL"),
        (["run", "127.0.0.1:9", "--concurrency", "2", "--rate", "3"], "exclude each other"),
        (["run", "127.0.0.1:9", "--slo", "speed=1"], "no SLO"),
        (["search", "127.0.0.1:9"], "--slo"),
        (["sweep", "127.0.0.1:9", "--loads", "one"], "--loads"),
        (["compare", "nowhere.json", "nowhere.json"], "nowhere.json"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    argv: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(argv) == 2
    error = capsys.readouterr().err
    assert complaint in error and error.count("\n") == 1


def test_help_describes_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("run", "sweep", "search", "throughput"):
        with pytest.raises(SystemExit):
            parser().parse_args([command, "--help"])
        shown = capsys.readouterr().out
        assert "--max-tokens" in shown and "output tokens asked for" in shown


def test_a_schema_and_extra_fields_travel_in_the_body(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"type": "object"}))
    with stub(QUICK) as server:
        asked = ["--schema", str(schema), "--extra", '{"top_k": 3}', "--beam-width", "4"]
        main(["run", server.url, "--requests", "1", "--no-progress", "--ignore-eos", *asked])
    body = server.served[0].body
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object"}
    assert (body["top_k"], body["beam_width"], body["ignore_eos"]) == (3, 4, True)
    assert body["stream_options"] == {"include_usage": True}
