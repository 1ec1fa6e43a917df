"""Prompts of a file are handed out for ever, each as often as the others."""

import pytest

from draftwerk_tools.loadtest.workloads.collection import Collection, chosen
from draftwerk_tools.loadtest.workloads.prompt import WorkloadPrompt

PROMPTS = [
    WorkloadPrompt(turns=(str(at), "more"), category="ab"[at % 2], at_s=float(at))
    for at in range(6)
]


def test_every_lap_has_each_prompt_once_in_an_order_of_its_own() -> None:
    collection = Collection(PROMPTS, seed=1)
    laps = [[collection.prompt(6 * lap + at).turns[0] for at in range(6)] for lap in range(5)]
    assert all(sorted(lap) == ["0", "1", "2", "3", "4", "5"] for lap in laps)
    assert len({tuple(lap) for lap in laps}) > 1
    assert laps == [
        [collection.prompt(6 * lap + at).turns[0] for at in range(6)] for lap in range(5)
    ]


def test_in_order_they_stay_so_and_times_are_those_of_the_file() -> None:
    collection = Collection(PROMPTS, seed=1, in_order=True)
    assert [collection.prompt(at).turns[0] for at in range(8)] == [*"01234501"]
    assert collection.timestamps_s == [float(at) for at in range(6)]
    assert Collection([WorkloadPrompt(turns=("a",))], 1).timestamps_s is None


def test_prompts_are_chosen_by_category_and_cut() -> None:
    found = chosen(PROMPTS, ["a"], 1, 9)
    assert [prompt.turns for prompt in found] == [("0",), ("2",), ("4",)]
    assert all(prompt.output_tokens == 9 for prompt in found)
    with pytest.raises(ValueError, match="no prompt is left"):
        chosen(PROMPTS, ["c"], 0, None)
