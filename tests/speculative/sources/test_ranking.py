"""Ranking: the best candidates below a node, the first of them in buckets of its own."""

from typing import Any

import pytest

from draftwerk.speculative.sources.ranking import BANDS, GREEDY_BANDS, SAMPLED_BANDS, Ranking
from draftwerk.speculative.sources.registry import NUMBERS
from tests.speculative.sources.trees import empty


class Order:
    """Ranks by loss, as greedy texts do."""

    def __init__(self, sampled: bool) -> None:
        self.sampled = sampled

    def ranked(self, position: int, tokens: Any, losses: Any) -> list[tuple[float, int]]:
        return sorted(
            ((-loss / 16, token) for token, loss in zip(tokens, losses, strict=True)), reverse=True
        )


@pytest.mark.parametrize("sampled", [False, True])
def test_the_best_are_added_below_their_node_and_no_more(sampled: bool) -> None:
    noise: Any = Order(sampled)
    tree = empty()
    added = Ranking(NUMBERS["recycle"], noise).add(tree, -1, 5, (7, 8, 9), (40, 2, 9), 2)
    assert [token for _, token in added] == [8, 9]
    assert [tree.tokens[node] for node, _ in added] == [8, 9]
    assert tree.scores[added[0][0]] > tree.scores[added[1][0]]


def test_bands_find_room_in_their_buckets() -> None:
    for bands in (GREEDY_BANDS, SAMPLED_BANDS):
        assert list(bands) == sorted(bands) and len(bands) < BANDS
