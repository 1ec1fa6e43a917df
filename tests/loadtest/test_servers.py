"""Servers differ: what they leave out, add or get wrong is understood or named."""

import pytest

from draftwerk_tools.loadtest.__main__ import main
from draftwerk_tools.loadtest.results.result import Run
from draftwerk_tools.loadtest.server.reply_types import error_message
from tests.loadtest.helpers import measure
from tests.loadtest.stub import Manner, stub

QUICK = Manner(first_s=0.05, gap_s=0.01, chunks=3)


def run_against(quirk: str, **options: object) -> Run:
    with stub(QUICK, quirk=quirk) as server:
        return measure(server.url, **({"requests": 2} | options))


@pytest.mark.parametrize("quirk", ["role first", "crlf", "comments", "no done", ""])
def test_streams_of_every_style_are_read_alike(quirk: str) -> None:
    run = run_against(quirk)
    assert run.summary.outcomes == {"ok": 2}
    assert all(row.chunks == 3 and row.output_tokens == 3 for row in run.rows)
    # A role sent early is not content: the first token came after the delay.
    assert all((row.ttft_s() or 0) >= QUICK.first_s for row in run.rows)


def test_chunks_stand_for_tokens_when_usage_never_comes() -> None:
    run = run_against("no usage")
    assert [row.output_tokens for row in run.rows] == [3, 3]
    assert any("without usage" in line for line in run.warnings)


@pytest.mark.parametrize(
    ("quirk", "kind"),
    [
        ("error event", "error event"),
        ("no last word", "truncated"),
        ("cut", "disconnect"),
        ("refuse", "HTTP 503"),
        ("drops all", "disconnect"),  # not sent again, as the connection was new
    ],
)
def test_each_failure_has_its_own_name(quirk: str, kind: str) -> None:
    run = run_against(quirk)
    assert run.summary.errors == {kind: 2}
    assert not run.summary.outcomes.get("ok")


def test_a_request_on_a_dead_kept_connection_is_sent_again_and_counted() -> None:
    run = run_against("drops kept", requests=3)
    assert run.summary.outcomes == {"ok": 3}
    assert [row.resent for row in run.rows] == [0, 1, 1]
    assert any("2 requests were sent again" in line for line in run.warnings)


def test_refusals_are_counted_by_kind_and_miss_the_slo() -> None:
    run = run_against("refuse", slo=["e2e=60s"])
    assert run.summary.outcomes == {"refused": 2}
    assert run.rows[0].retry_after == "2"
    assert run.summary.goodput is not None
    assert (run.summary.goodput.share.met, run.summary.goodput.share.n) == (0, 2)


def test_a_websocket_refused_before_it_opens_is_a_refusal() -> None:
    run = run_against("refuse", endpoint="responses", transport="ws")
    assert run.summary.outcomes == {"refused": 2}


def test_absent_server_is_a_connect_error() -> None:
    run = measure("127.0.0.1:9", requests=2)
    assert run.summary.errors == {"connect": 2}


def test_a_refusal_carries_message_and_url(capsys: pytest.CaptureFixture[str]) -> None:
    with stub(QUICK, quirk="unknown model") as server:
        assert main(["run", server.url, "--requests", "2", "--no-progress"]) == 1
        url = f"{server.url}/v1/chat/completions"
    shown = capsys.readouterr().out
    assert f"errors       2 x HTTP 404: The model `stub` does not exist. ({url})" in shown


def test_a_failed_connection_carries_its_url(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--requests", "1", "--no-progress", "--loads", "1", "--waves", "1"]
    assert main(["sweep", "http://127.0.0.1:9", *words]) == 1
    shown = capsys.readouterr().out
    assert "1 x connect: Cannot connect to host 127.0.0.1:9" in shown
    assert "(http://127.0.0.1:9/v1/chat/completions)" in shown


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": "no such model", "code": 404}}', "no such model"),
        (b"<html>\n  Bad Gateway</html>", "<html> Bad Gateway</html>"),
        (b'{"detail": "Not Found"}', '{"detail": "Not Found"}'),
        (b"", "no message"),
        (b"\xff" * 1000, "\N{REPLACEMENT CHARACTER}" * 200),
    ],
)
def test_an_error_body_of_any_shape_gives_a_line(body: bytes, message: str) -> None:
    assert error_message(body) == message


def test_an_answer_that_takes_too_long_is_a_timeout() -> None:
    with stub(first_s=5.0) as server:
        run = measure(server.url, requests=1, timeout_s=0.1)
    assert run.summary.errors == {"timeout": 1}


@pytest.mark.parametrize("transport", ["sse", "ws"])
def test_users_who_hang_up_close_their_stream_and_miss_nothing(transport: str) -> None:
    with stub(first_s=0.02, gap_s=0.3, chunks=20) as server:
        run = measure(
            server.url,
            endpoint="responses",
            transport=transport,
            requests=3,
            concurrency=3,
            cancel_fraction=1.0,
            cancel_after_s=0.05,
            slo=["e2e=1s"],
        )
    assert run.summary.outcomes == {"cancelled": 3}
    assert run.summary.goodput is not None and run.summary.goodput.share.n == 0
    if transport == "sse":
        assert all(one.hung_up for one in server.served)


def test_completions_take_text_or_token_ids() -> None:
    with stub(QUICK) as server:
        measure(server.url, endpoint="completions", requests=1)
        measure(server.url, endpoint="completions", requests=1, token_ids=True, prompt_tokens=9)
    first, second = (one.body["prompt"] for one in server.served)
    assert isinstance(first, str)
    assert len(second) == 9 and all(isinstance(token, int) for token in second)


def test_server_metrics_are_read_alongside() -> None:
    with stub(QUICK) as server:
        run = measure(server.url, requests=2, scrape=True, scrape_s=0.05)
    assert run.server is not None
    assert {value for _, value in run.server.gauges["running"]} == {3.0}
    growth = run.server.growth["vllm:generation_tokens_total{engine=0}"]
    assert growth == 100 * (server.pages - 1)


def test_counting_answers_are_checked() -> None:
    def count(asked: str) -> list[str]:
        last = int(asked.rstrip(",").split(", ")[-1])
        wrong = 1 if last % 2 else 0
        return [f" {last + 1},", f" {last + 2 + wrong},", f" {last + 3},"]

    with stub(QUICK, answer=count) as server:
        run = measure(server.url, workload="count", requests=12, concurrency=4)
    checked = {row.correct for row in run.rows}
    assert checked == {True, False}
    assert run.summary.correct is not None
    assert run.summary.correct.met == sum(row.correct is True for row in run.rows)
    assert any("counting answers are wrong" in line for line in run.warnings)


def test_draft_counts_are_added_up_and_checked() -> None:
    told = {
        "time_to_first_token_ms": 12.5,
        "speculative_decoding": {
            "acceptance_histogram": [1, 2, 1],
            "num_spec_steps": 4,
            "num_accepted_draft_tokens": 4,
            "num_draft_tokens": 8,
        },
    }
    with stub(QUICK, metrics=told) as server:
        run = measure(server.url, requests=3)
    drafted = run.summary.speculation
    assert drafted is not None
    assert (drafted.steps, drafted.accepted, drafted.accepted_length) == (12, 12, 2.0)
    assert drafted.accepted_share == 0.5
    assert drafted.histogram == [3, 6, 3]
    assert run.rows[0].server_first_ms == 12.5
