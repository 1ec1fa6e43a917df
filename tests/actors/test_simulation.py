"""Hundreds of whole engines on virtual time; the checks are in tests/support/simulation.py."""

from collections import Counter
from typing import Any

import pytest

from draftwerk.speculative.requests.slo import NO_SLO, Slo, SloPolicy
from tests.support.simulation import Setting, few_windows, run, run_with_peers


def total(settings: list[Setting]) -> Counter[str]:
    return sum((run(setting).counters for setting in settings), Counter[str]())


@pytest.mark.parametrize("pipeline_depth", [1, 2])
def test_every_request_has_one_last_word_and_the_plain_text(pipeline_depth: int) -> None:
    how = {"pipeline_depth": pipeline_depth, "block_count": 24}
    counters = total([Setting(seed, **how) for seed in range(8)])
    for happened in (
        "finished",
        "left",
        "refused",
        "preemptions",
        "accepted",
        "rejected",
        "prefix_hits",
        "search finished",
        "search left",
    ):
        assert counters[happened] > 0, counters
    assert counters["failed"] == 0


@pytest.mark.parametrize(
    "how", [{}, {"reckless": False}, {"block_count": 16}, {"bugs": 0.003}, {"odd": 0.2}], ids=str
)
def test_two_rounds_in_flight_change_no_text(how: dict[str, Any]) -> None:
    counters = total([Setting(seed, run_ahead=True, **how) for seed in range(6)])
    for happened in ("finished", "left", "accepted", "rejected", "search finished", "overrun"):
        assert counters[happened] > 0, counters
    assert counters["failed"] == 0


def test_a_target_lost_with_two_rounds_in_flight_computes_both_again() -> None:
    settings = [
        Setting(seed, run_ahead=True, lost=0.08, spare=bool(seed % 2), late=0.02)
        for seed in range(8)
    ]
    counters = total(settings)
    assert counters["recoveries"] > 6, counters
    # 0.23 of them over 200 seeds, and 0.09 to 0.54 over 20: rounds that are lost twice.
    assert counters["restarts"] < counters["recoveries"] / 2, counters
    assert counters["target dies in the middle of its work"] > 0, counters
    assert counters["finished"] > 25, counters
    assert counters["failed"] == 0


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"run_ahead": True},
        {"block_count": 14},
        {"block_count": 14, "run_ahead": True},
        {"run_ahead": True, "lost": 0.1},
        {"lost": 0.1, "spare": True},
        {"bugs": 0.003},
    ],
    ids=str,
)
def test_recurrent_states_change_no_text(how: dict[str, Any]) -> None:
    """In so few slots that one text runs at a time, and in so many that snapshots stay."""
    counters = total([Setting(seed, state_slots=3 + 2 * seed, **how) for seed in range(6)])
    for happened in ("finished", "left", "accepted", "rejected", "prefix_hits", "search finished"):
        assert counters[happened] > 0, counters
    if "block_count" in how:
        assert counters["preemptions"] > 0, counters
    if how.get("lost"):
        assert counters["recoveries"] > 2, counters
        assert counters["target dies in the middle of its work"] > 0, counters
    assert counters["failed"] == 0


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"run_ahead": True},
        {"block_count": 14},
        {"run_ahead": True, "lost": 0.1},
        {"lost": 0.1, "spare": True},
        {"bugs": 0.003},
    ],
    ids=str,
)
def test_windows_with_blocks_of_their_own_change_no_text(how: dict[str, Any]) -> None:
    counters = total([Setting(seed, windows=few_windows(seed), **how) for seed in range(6)])
    for happened in ("finished", "left", "accepted", "rejected", "prefix_hits", "search finished"):
        assert counters[happened] > 0, counters
    if how.get("lost"):
        assert counters["recoveries"] > 2, counters
    assert counters["failed"] == 0


@pytest.mark.parametrize("lost", [0.0, 0.05])
def test_no_promise_changes_a_text(lost: float) -> None:
    slo = Slo(ttft=0.5, tpot=0.0001)
    settings = [Setting(seed, lost=lost, slo=slo, block_count=16) for seed in range(6)]
    counters = total(settings)
    assert counters["finished"] > 25, counters
    assert counters["preemptions"] > 0, counters
    assert counters["failed"] == 0


@pytest.mark.parametrize("policy", ["serve", "last", "refuse"])
def test_promises_and_deadlines_of_their_own_change_no_text(policy: SloPolicy) -> None:
    how = [{}, {"lost": 0.05}, {"run_ahead": True}, {"late": 0.05}]
    settings = [
        Setting(
            seed,
            policy=policy,
            promised=0.8,
            slo=Slo(ttft=1.0, tpot=0.01) if seed % 2 else NO_SLO,
            requests=16,
            block_count=20,
            **how[seed % 4],
        )
        for seed in range(12)
    ]
    counters = total(settings)
    for happened in ("promise finished", "expired", "preemptions", "recoveries"):
        assert counters[happened] > 1, counters
    assert (counters["unmet"] > 5) == (policy == "refuse"), counters
    assert counters["finished"] > 25, counters
    assert counters["failed"] == 0


def test_a_lost_target_is_only_a_pause() -> None:
    counters = total([Setting(seed, lost=0.05, recovers=False) for seed in range(12)])
    assert counters["restarts"] > 8, counters
    assert counters["finished"] > 25, counters
    assert counters["search finished"] > 1, counters
    assert counters["failed"] == 0


@pytest.mark.parametrize("spare", [False, True])
def test_over_pages_that_outlive_the_target_sequences_go_on(spare: bool) -> None:
    counters = total([Setting(seed, lost=0.05, spare=spare) for seed in range(12)])
    assert counters["recoveries"] > 6, counters
    assert counters["restarts"] < counters["recoveries"] / 4, counters
    assert counters["target dies in the middle of its work"] > 0, counters
    assert counters["finished"] > 25, counters
    assert counters["search finished"] > 3, counters
    assert counters["failed"] == 0


def test_reused_segments_are_those_that_stand_alone() -> None:
    how = [{}, {"lost": 0.05}, {"lost": 0.03, "spare": True, "bugs": 0.003}, {"block_count": 20}]
    counters = total([Setting(seed, blended=0.6, **how[seed % 4]) for seed in range(8)])
    for happened in ("blend finished", "blend search finished", "preemptions", "recoveries"):
        assert counters[happened] > 1, counters
    assert counters["blend finished"] > 30, counters
    assert counters["failed"] == 0


@pytest.mark.parametrize("how", [{}, {"run_ahead": True}, {"store": True}])
def test_nothing_is_found_again_that_another_adapter_has_computed(how: dict[str, Any]) -> None:
    losses = [{}, {"lost": 0.05}, {"lost": 0.03, "spare": True, "bugs": 0.003}, {"block_count": 20}]
    counters = total([Setting(seed, adapted=0.7, **how, **losses[seed % 4]) for seed in range(12)])
    for happened in ("adapter finished", "adapter search finished", "preemptions", "recoveries"):
        assert counters[happened] > 1, counters
    assert counters["adapter finished"] > 30, counters
    assert counters["prefix_hits"] > 25, counters
    assert counters["failed"] == 0


def test_reused_segments_are_the_same_while_others_run_ahead() -> None:
    how = [{}, {"lost": 0.05}, {"lost": 0.03, "spare": True, "bugs": 0.003}, {"block_count": 20}]
    settings = [
        Setting(seed, blended=0.6, run_ahead=True, reckless=seed % 3 == 0, **how[seed % 4])
        for seed in range(8)
    ]
    counters = total(settings)
    for happened in ("blend finished", "blend search finished", "preemptions", "recoveries"):
        assert counters[happened] > 1, counters
    assert counters["blend finished"] > 30, counters
    assert counters["overrun"] > 5, counters
    assert counters["failed"] == 0


def test_blocks_from_a_second_tier_are_those_that_were_lost() -> None:
    counters = Counter[str]()
    for seed in range(16, 21):
        kept: dict[bytes, list[tuple[int, int]]] = {}
        for server in range(2):  # the second one finds what the first has kept
            blended = 0.4 * (seed % 2)
            setting = Setting(
                2 * seed + server,
                store=True,
                kept=kept,
                requests=18,
                block_count=22,
                lost=0.02,
                bugs=0.003,
                blended=blended,
            )
            counters += run(setting).counters
    assert counters["store_hits"] > 30, counters
    assert counters["returned"] > 0, counters
    assert counters["finished"] > 30, counters
    assert counters["failed"] == 0


def test_a_peer_that_is_killed_while_it_hands_blocks_over_costs_a_miss() -> None:
    counters = sum(map(run_with_peers, range(5)), Counter[str]())
    assert counters["peers_killed"] > 6, counters
    assert counters["peers_altered"] > 2, counters
    assert counters["store_hits"] > 12, counters
    assert counters["finished"] > 45, counters
    assert counters["failed"] == 0


@pytest.mark.parametrize("run_ahead", [False, True])
def test_recurrent_states_from_a_second_tier_are_those_that_were_lost(run_ahead: bool) -> None:
    counters = Counter[str]()
    for seed in range(4):
        kept: dict[bytes, list[tuple[int, int]]] = {}
        kept_states: dict[bytes, list[tuple[int, int]]] = {}
        for server in range(2):
            setting = Setting(
                2 * seed + server,
                store=True,
                kept=kept,
                kept_states=kept_states,
                state_slots=4 + seed % 12,
                run_ahead=run_ahead,
                lost=0.02,
                bugs=0.003,
            )
            counters += run(setting).counters
    assert counters["state_hits"] > 10, counters
    assert counters["store_hits"] > 20, counters
    assert counters["finished"] > 50, counters
    assert counters["failed"] == 0


def test_one_seed_gives_one_schedule() -> None:
    first, second = run(Setting(7)), run(Setting(7))
    assert first.counters == second.counters


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"lost": 0.1},
        {"run_ahead": True, "lost": 0.08},
        {"bugs": 0.003, "pipeline_depth": 2},
        {"store": True},
        {"promised": 0.5, "policy": "refuse"},
    ],
    ids=str,
)
def test_prompts_that_are_read_come_to_the_same_in_any_company(how: dict[str, Any]) -> None:
    counters = total([Setting(seed, reading=0.5, block_count=18, **how) for seed in range(8)])
    for happened in ("reading finished", "finished", "preemptions", "prefix_hits"):
        assert counters[happened] > 0, counters
    assert counters["failed"] == 0
