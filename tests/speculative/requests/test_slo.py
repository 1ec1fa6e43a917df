"""Service-level objectives in words."""

import pytest

from draftwerk.speculative.requests.slo import Slo, read_objective, read_slo, read_time


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ttft=500ms", ("ttft", 0.5)),
        ("tpot < 0.05", ("tpot", 0.05)),
        (" ttft = 2s ", ("ttft", 2.0)),
    ],
)
def test_an_objective_is_a_metric_and_seconds(text: str, found: tuple[str, float]) -> None:
    assert read_objective(text) == found


@pytest.mark.parametrize(
    "text", ["", "ttft", "ttft=", "ttft=1h", "e2e=1s", "ttft=1.2.3s", "ttft=-1"]
)
def test_another_word_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="no SLO"):
        read_objective(text)


def test_a_promise_is_read_from_one_text_or_several() -> None:
    assert read_slo(["ttft=1s,tpot=50ms"]) == Slo(ttft=1.0, tpot=0.05)
    assert read_slo(["tpot=50ms", "ttft=1s"]) == Slo(ttft=1.0, tpot=0.05)
    assert not read_slo([])


@pytest.mark.parametrize("texts", [["ttft=1s", "ttft=2s"], ["tpot=0ms"], ["e2e=1s"]])
def test_a_promise_that_cannot_be_is_refused(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="no SLO"):
        read_slo(texts)


def test_a_promise_is_kept_if_every_limit_is() -> None:
    both = Slo(ttft=1.0, tpot=0.05)
    assert both.is_kept(1.0, 0.05)
    assert both.is_kept(0.5, None)
    assert not both.is_kept(1.1, 0.01)
    assert not both.is_kept(0.5, 0.06)
    assert Slo(tpot=0.05).is_kept(100.0, 0.05)


@pytest.mark.parametrize(
    ("given", "seconds"), [("500ms", 0.5), (" 2 s ", 2.0), ("1.5", 1.5), (0.25, 0.25), (3, 3.0)]
)
def test_a_time_is_a_number_with_a_unit_or_of_seconds(given: str | float, seconds: float) -> None:
    assert read_time(given) == seconds


@pytest.mark.parametrize("given", ["", "0ms", "-1s", "1m", "s", "nan", 0.0, -2.0, 1e9, "86401"])
def test_what_is_no_time_is_refused(given: str | float) -> None:
    with pytest.raises(ValueError, match="a time above 0"):
        read_time(given)


def test_a_promise_goes_over_another_limit_by_limit() -> None:
    server = Slo(ttft=1.0, tpot=0.05)
    assert Slo(tpot=0.2).over(server) == Slo(ttft=1.0, tpot=0.2)
    assert Slo().over(server) == server
    assert server.over(Slo(ttft=9.0)) == server
