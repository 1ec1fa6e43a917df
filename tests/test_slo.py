"""Service-level objectives in words."""

import pytest

from draftwerk.slo import Promise, read_objective, read_promise


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ttft=500ms", ("ttft", 0.5)),
        ("tpot < 0.05", ("tpot", 0.05)),
        (" ttft = 2s ", ("ttft", 2.0)),
    ],
)
def test_an_objective_is_a_metric_and_seconds(text: str, found: tuple[str, float]) -> None:
    assert read_objective(text, ("ttft", "tpot")) == found


@pytest.mark.parametrize(
    "text", ["", "ttft", "ttft=", "ttft=1h", "e2e=1s", "ttft=1.2.3s", "ttft=-1"]
)
def test_another_word_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="no SLO"):
        read_objective(text, ("ttft", "tpot"))


def test_a_promise_is_read_from_one_text_or_several() -> None:
    assert read_promise(["ttft=1s,tpot=50ms"]) == Promise(ttft=1.0, tpot=0.05)
    assert read_promise(["tpot=50ms", "ttft=1s"]) == Promise(ttft=1.0, tpot=0.05)
    assert not read_promise([])


@pytest.mark.parametrize("texts", [["ttft=1s", "ttft=2s"], ["tpot=0ms"], ["e2e=1s"]])
def test_a_promise_that_cannot_be_is_refused(texts: list[str]) -> None:
    with pytest.raises(ValueError, match="no SLO"):
        read_promise(texts)


def test_a_promise_is_kept_if_every_limit_is() -> None:
    both = Promise(ttft=1.0, tpot=0.05)
    assert both.is_kept(1.0, 0.05)
    assert both.is_kept(0.5, None)
    assert not both.is_kept(1.1, 0.01)
    assert not both.is_kept(0.5, 0.06)
    assert Promise(tpot=0.05).is_kept(100.0, 0.05)
