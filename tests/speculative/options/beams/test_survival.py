"""The chance of a draft node to survive, and the price that it must beat."""

from dataclasses import replace
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.options.beams.survival import (
    CHANCE_MIN,
    KNOWN,
    LEAD_MAX,
    SURENESS,
    NodeCost,
    chance,
    leads,
)

SCORES = st.lists(st.floats(-50, 0), min_size=1, max_size=12).map(
    lambda found: sorted(found, reverse=True)
)


@given(scores=SCORES, width=st.integers(1, 8))
def test_only_what_would_survive_leads(scores: list[float], width: int) -> None:
    found = leads(scores, width)
    assert len(found) == len(scores)
    assert found[:width] == sorted(found[:width], reverse=True)
    assert found[width:] == sorted(found[width:], reverse=True)
    assert all(lead >= 0.0 for lead in found[:width])
    assert all(lead <= 0.0 for lead in found[width:])
    if len(scores) <= width:
        assert found == [LEAD_MAX] * len(scores)


def test_the_rival_of_a_survivor_is_the_first_that_is_none_and_the_other_way_round() -> None:
    assert leads([-1.0, -2.0, -2.5, -4.0], 2) == [1.5, 0.5, -0.5, -2.0]


@given(lead=st.floats(-20, LEAD_MAX), sureness=st.integers(0, KNOWN))
def test_chance_grows_with_the_lead_and_is_half_at_the_edge(lead: float, sureness: int) -> None:
    edge = SURENESS[sureness].edge
    assert chance(edge, sureness) == 0.5
    assert 0.0 <= chance(lead - 0.5, sureness) < chance(lead, sureness) < 1.0


def test_the_surer_a_candidate_the_less_lead_it_needs() -> None:
    assert len(SURENESS) == KNOWN + 1
    for less, more in pairwise(SURENESS):
        assert more.edge < less.edge and more.slope >= less.slope and more.doubt <= less.doubt
    assert SURENESS[KNOWN].doubt == 0.0  # computed, not guessed


def test_the_price_of_a_node_is_what_it_costs_over_what_it_saves() -> None:
    costs = [10.0 + 0.25 * tokens for tokens in range(100)]
    alone = NodeCost(width=4, load=4, rows=4, costs=costs)
    assert abs(alone.price(0) - 4 * 0.25 / costs[4]) < 1e-12
    beside = NodeCost(width=4, load=16, rows=4, costs=costs)
    assert abs(beside.price(0) - 4 * 0.25 / (4 / 16 * costs[16])) < 1e-12
    assert alone.price(96) == 1.0  # beyond what is measured
    again = replace(alone, is_read_again=True)
    assert abs(again.price(0) - alone.price(0) / (1.0 - alone.price(0))) < 1e-12


def test_a_node_that_costs_nothing_has_the_least_price() -> None:
    assert NodeCost(width=4, load=4, rows=4, costs=[10.0] * 64).price(8) == CHANCE_MIN
