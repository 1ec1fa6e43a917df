"""The probe of answer lengths: its measure, and that nothing is predicted from itself."""

from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from benchmarks.prompts.length_probe import (
    by_category_mean,
    by_ridge,
    out_of_category,
    out_of_fold,
    tau,
    within,
)

PROMPTS, FEATURES = 60, 120


def column(values: list[float]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def random_features() -> Tensor:
    dice = torch.Generator().manual_seed(1)
    return torch.randn(PROMPTS, FEATURES, generator=dice, dtype=torch.float64)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=12))
def test_tau_counts_pairs_in_order_and_out_of_it(pairs: list[tuple[int, int]]) -> None:
    agree = first = second = 0
    for (a, x), (b, y) in combinations(pairs, 2):
        agree += ((a > b) - (a < b)) * ((x > y) - (x < y))
        first += a != b
        second += x != y
    expected = agree / (first * second) ** 0.5 if first and second else 0.0
    left, right = (column([float(pair[n]) for pair in pairs]) for n in (0, 1))
    assert tau(left, right) == pytest.approx(expected)


def test_no_prompt_is_predicted_from_itself_or_its_category() -> None:
    categories = torch.arange(PROMPTS) % 4
    asked: list[int] = []

    def predict(known: Tensor, new: Tensor) -> Tensor:
        assert not {*known.tolist()} & {*new.tolist()}
        asked.extend(new.tolist())
        return categories[known].unique().sum() * torch.ones(len(new), dtype=torch.float64)

    out_of_fold(predict, torch.arange(PROMPTS), 10)
    assert sorted(asked) == [*range(PROMPTS)]
    assert torch.equal(out_of_category(predict, categories), 6.0 - categories)


def test_a_probe_finds_what_is_there_and_nothing_where_nothing_is() -> None:
    features = random_features()
    every = torch.arange(PROMPTS)
    lengths = features[:, :3].sum(1)
    found = out_of_fold(by_ridge(features[:, :20], lengths), every, 10)
    assert tau(found, lengths) > 0.6
    unrelated = lengths[torch.randperm(PROMPTS, generator=torch.Generator().manual_seed(2))]
    assert abs(tau(out_of_fold(by_ridge(features, unrelated), every, 10), unrelated)) < 0.2


def test_the_kind_of_a_prompt_tells_nothing_within_it() -> None:
    categories = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    lengths = column([1, 2, 3, 4, 11, 12, 13, 14])
    found = by_category_mean(categories, lengths)(torch.arange(8), torch.arange(8))
    assert tau(found, lengths) > 0.7
    assert within(found, lengths, categories) == 0.0
    assert within(lengths, lengths, categories) == 1.0
