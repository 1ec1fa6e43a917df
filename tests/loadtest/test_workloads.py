"""Prompts from files and from nothing."""

from collections import Counter
from pathlib import Path

import pytest

from draftwerk_tools.loadtest.options import LoadTestOptions
from draftwerk_tools.loadtest.workloads.catalogue import open_workload
from draftwerk_tools.loadtest.workloads.oracle import CountUpward, check_count
from draftwerk_tools.loadtest.workloads.synthetic import Synthetic
from tests.loadtest.workloads.test_prompt_files import lines


def test_benchmark_files_keep_categories_and_turns(tmp_path: Path) -> None:
    rows = [
        {"question_id": n, "category": c, "turns": [f"{c} {n}", "more"]}
        for n, c in enumerate(["math", "writing", "math"])
    ]
    path = lines(tmp_path / "questions.jsonl", *rows)
    workload = open_workload(
        LoadTestOptions(workload=f"mt-bench:{path}", categories="math", turns=0)
    )
    asked = {workload.prompt(index).turns for index in range(2)}
    assert asked == {("math 0", "more"), ("math 2", "more")}
    first = open_workload(LoadTestOptions(workload=f"spec-bench:{path}", in_order=True)).prompt(1)
    assert first.turns == ("writing 1",) and first.category == "writing"


def test_a_mooncake_trace_keeps_times_lengths_and_shared_prefixes(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 0, "input_length": 700, "output_length": 9, "hash_ids": [1, 2]},
        {"timestamp": 1500, "input_length": 1100, "output_length": 3, "hash_ids": [1, 2, 3]},
    ]
    path = lines(tmp_path / "trace.jsonl", *rows)
    workload = open_workload(LoadTestOptions(workload=f"mooncake:{path}"))
    first, second = workload.prompt(0), workload.prompt(1)
    assert workload.timestamps_s == [0.0, 1.5]
    assert [len(p.turns[0].split()) for p in (first, second)] == [700, 1100]
    assert second.turns[0].startswith(first.turns[0])
    assert (first.output_tokens, second.output_tokens) == (9, 3)


def test_questions_of_a_file_have_answers_of_spread_lengths(tmp_path: Path) -> None:
    path = lines(tmp_path / "questions.jsonl", {"prompt": "Why?"})
    options = LoadTestOptions(workload=f"jsonl:{path}", max_tokens=20, output_spread=0.5, seed=1)
    lengths = [open_workload(options).prompt(index).output_tokens or 0 for index in range(100)]
    assert 10 <= min(lengths) < max(lengths) <= 30
    assert lengths == [open_workload(options).prompt(index).output_tokens for index in range(100)]


def test_synthetic_prompts_have_the_length_asked_for() -> None:
    workload = Synthetic(seed=1, prompt_tokens=50, output_tokens=20, output_spread=0.5)
    prompts = [workload.prompt(index) for index in range(200)]
    assert {len(p.turns[0].split()) for p in prompts} == {50}
    assert len({p.turns[0] for p in prompts}) == 200
    lengths = [p.output_tokens or 0 for p in prompts]
    assert min(lengths) >= 10 and max(lengths) <= 30 and len(set(lengths)) > 10


def test_groups_share_their_prefix_and_the_first_is_the_most_popular() -> None:
    workload = Synthetic(
        seed=1, prompt_tokens=5, output_tokens=1, prefix_groups=4, prefix_tokens=30, zipf=1.0
    )
    prompts = [workload.prompt(index) for index in range(2000)]
    prefixes = {(p.category, tuple(p.turns[0].split()[:30])) for p in prompts}
    assert len(prefixes) == 4
    counts = Counter(p.category for p in prompts)
    weights = [1.0, 1 / 2, 1 / 3, 1 / 4]
    for group, weight in enumerate(weights):
        assert counts[f"prefix {group}"] == pytest.approx(2000 * weight / sum(weights), rel=0.15)


def test_the_oracle_accepts_a_right_answer() -> None:
    prompt = CountUpward(seed=5).prompt(0)
    start = prompt.counts_from
    assert start is not None and prompt.turns[0].endswith(f"{start - 1},")
    assert check_count(f" {start}, {start + 1}, {start + 2}", start, cut_short=False) == (3, True)


@pytest.mark.parametrize(
    ("text", "cut_short", "right"),
    [
        ("100, 101, 102", False, (3, True)),
        ("100, 101, 10", True, (2, True)),
        ("100, 101, 10", False, (2, False)),
        ("98, 99, 100, 101", False, (2, True)),
        ("98, 99", True, (0, True)),
        ("98, 99", False, (0, False)),
        ("98, 7, 100", False, (0, False)),
        ("100, 102", False, (1, False)),
        ("7, 8", False, (0, False)),
        ("", False, (0, False)),
        ("no numbers", False, (0, False)),
    ],
)
def test_counting_is_right_only_without_a_gap(
    text: str, cut_short: bool, right: tuple[int, bool]
) -> None:
    assert check_count(text, 100, cut_short) == right


@pytest.mark.parametrize("workload", ["nonsense", "jsonl", "jsonl:"])
def test_unknown_workloads_are_refused_by_name(workload: str) -> None:
    with pytest.raises(ValueError, match=workload):
        open_workload(LoadTestOptions(workload=workload))
