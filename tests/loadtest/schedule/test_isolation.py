"""Variants and repeats never meet in a cache: equal variants are found equal, unequal ones not."""

import dataclasses
import math
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from draftwerk_tools.loadtest.measure.student import mean_interval, pooled, t_quantile
from draftwerk_tools.loadtest.options import LoadTestOptions
from draftwerk_tools.loadtest.report.page import result_page
from draftwerk_tools.loadtest.results.differences import difference_lines, differences
from draftwerk_tools.loadtest.results.table import sweep_text
from draftwerk_tools.loadtest.schedule.isolation import Isolation
from tests.loadtest.helpers import virtual_stub
from tests.loadtest.stub import Manner, Served, Stub
from tests.loadtest.test_commands import measured

CACHING = Manner(first_s=0.04, gap_s=0.002, chunks=3, quirk="salt in capabilities")
NO_SALT = dataclasses.replace(CACHING, quirk="no salt")
EQUAL = ["one={}", "two={}"]


def questions(server: Stub) -> dict[str, list[str]]:
    """Return what was asked after the warm-up, by salt."""
    found: dict[str, list[str]] = {}
    for one in measured(server):
        found.setdefault(one.body.get("cache_salt", ""), []).append(_question(one))
    return found


def _question(one: Served) -> str:
    return one.body["messages"][0]["content"]


@pytest.mark.parametrize("quirk", ["salt in capabilities", "no salt"])
def test_equal_variants_are_found_equal_ten_times_of_ten(quirk: str) -> None:
    with virtual_stub(dataclasses.replace(CACHING, quirk=quirk)) as server:
        for _ in range(10):
            found = differences(server.sweep(EQUAL))
            assert [each.figure for each in found] == ["tok/s", "TTFT p50"]
            assert not any(each.clear for each in found), found


def test_a_shared_cache_is_what_isolation_keeps_from_looking_like_a_difference() -> None:
    """The control: with one salt for all, the later variant is answered from the cache."""
    by_hand = ['one={"cache_salt": "same"}', 'two={"cache_salt": "same"}']
    with virtual_stub(CACHING) as server:
        sweep = server.sweep(by_hand, repeats=5)
    # The order turns with the repeat, so each variant is the later one in its turn.
    speeds = [run.summary.throughput.output_tokens_per_s for run in sweep.runs]
    pairs = zip(speeds[::2], speeds[1::2], strict=True)
    assert all(later > 1.5 * earlier for earlier, later in pairs)
    assert "given by hand" in sweep_text(sweep)


def test_a_real_difference_is_clear() -> None:
    with virtual_stub(CACHING) as server:
        sweep = server.sweep(["fast={}", 'slow={"slowness": 3}'], repeats=5)
    speed, first = differences(sweep)
    assert speed.clear and speed.ratio < 0.6
    assert first.clear and first.ratio > 2


@pytest.mark.parametrize("quirk", ["salt in capabilities", "salt in openapi"])
def test_where_the_server_has_salts_each_run_has_its_own_and_variants_the_same_questions(
    quirk: str,
) -> None:
    with virtual_stub(dataclasses.replace(CACHING, quirk=quirk)) as server:
        sweep = server.sweep(EQUAL, loads="1,2", repeats=2)
    asked = list(questions(server).values())
    assert len(asked) == 8, "two variants, two loads, two repeats"
    assert all(sorted(one) == sorted(two) for one, two in zip(asked[::2], asked[1::2], strict=True))
    assert len({text for texts in asked for text in texts}) == 4 * 3
    assert "a cache_salt of its own" in sweep_text(sweep)


def test_where_it_has_none_no_question_is_asked_in_two_runs() -> None:
    with virtual_stub(NO_SALT) as server:
        sweep = server.sweep(EQUAL, loads="1,2", repeats=2)
    (asked,) = questions(server).values()
    assert len(asked) == len(set(asked)) == 8 * 3
    assert "no question is asked in two runs" in sweep_text(sweep)
    assert "What the variants differ by" in result_page(sweep)


def test_a_file_too_small_for_that_is_named(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(f'{{"prompt": "question {n}"}}\n' for n in range(20)))
    options = LoadTestOptions(workload=f"jsonl:{prompts}", requests=3, concurrency=1)
    isolation = Isolation(key="k", salted=False, distinct=20, seed=0)
    skips = [isolation.placed(options, side_by_side=n % 2 == 1).skip for n in range(7)]
    assert skips == [0, 3, 6, 9, 12, 15, 18]
    assert any("21 questions are asked of the workload's 20" in note for note in isolation.notes())
    salted = Isolation(key="k", salted=True, distinct=20, seed=0)
    placed = [salted.placed(options, side_by_side=n % 2 == 1) for n in range(4)]
    assert [each.skip for each in placed] == [0, 0, 3, 3]
    assert len({each.extra for each in placed}) == 4


def test_one_repeat_gives_no_verdict() -> None:
    with virtual_stub(CACHING) as server:
        lines = difference_lines(server.sweep(EQUAL, repeats=1))
    assert [line[-1] for line in lines[1:]] == ["one repeat tells nothing"] * 2


@pytest.mark.parametrize(
    ("share", "freedom", "value"),
    [(0.975, 1, 12.7062), (0.975, 2, 4.30265), (0.995, 5, 4.03214), (0.9995, 9, 4.78091)],
)
def test_quantiles_are_those_of_the_tables(share: float, freedom: int, value: float) -> None:
    assert math.isclose(t_quantile(share, freedom), value, rel_tol=1e-5)


def test_an_interval_misses_at_most_as_often_as_its_level() -> None:
    rng = Random(1)
    missed = 0
    for _ in range(2000):
        groups = [[rng.gauss(truth, 2) for _ in range(4)] for truth in (5, 50)]
        low, high = mean_interval(groups[0], pooled(groups), 0.05)
        missed += not low <= 5 <= high
    assert 40 <= missed <= 120  # 100 at most, less since a wide group keeps its own deviation


def test_a_noisy_load_keeps_its_own_spread() -> None:
    quiet, noisy = [0.0, 0.01, -0.01, 0.0], [0.5, -0.5, 0.6, -0.3]
    low, high = mean_interval(noisy, pooled([quiet, quiet, quiet, noisy]), 0.01)
    assert low < 0 < high and high - low > 1


def test_the_seed_alone_makes_the_questions() -> None:
    first, second = (Isolation(key=key, salted=False, distinct=None, seed=3) for key in "ab")
    options = LoadTestOptions(requests=2, concurrency=1)
    assert [first.placed(options) for _ in range(3)] == [second.placed(options) for _ in range(3)]
    assert replace(first.placed(options), seed=0) == replace(options, seed=0)
