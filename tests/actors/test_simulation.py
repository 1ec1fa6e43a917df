"""Hundreds of whole engines on virtual time; the checks are in tests/support/simulation.py."""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from draftwerk.speculative.requests.slo import NO_SLO, Slo
from tests.support.simulation import Setting, few_windows, run, run_with_peers

SOME = dict.fromkeys(("finished", "left", "accepted", "rejected", "search finished"), 0)
FOUND = SOME | {"prefix_hits": 0}
DIES = "target dies in the middle of its work"
LOSSES = ({}, {"lost": 0.05}, {"lost": 0.03, "spare": True, "bugs": 0.003}, {"block_count": 20})
DATES = ({}, {"lost": 0.05}, {"run_ahead": True}, {"late": 0.05})
BLENDS = {"blend finished": 30, "blend search finished": 1, "preemptions": 1, "recoveries": 1}
ADAPTED = {"adapter finished": 30, "adapter search finished": 1, "prefix_hits": 25}
DATED = {"promise finished": 1, "expired": 1, "preemptions": 1, "recoveries": 1, "finished": 25}
KEPT = {"recoveries": 6, DIES: 0, "finished": 25}


class Lives(NamedTuple):
    """Engines, one a seed, and what must have happened in all of them together."""

    setting: Callable[[int], dict[str, Any]]
    counts: dict[str, int] = SOME
    """Each is exceeded."""
    seeds: int = 6
    restarts: float | None = None
    """The share of recoveries by which actors may start anew, if that is bounded."""
    at_most: tuple[str, int] = ("failed", 0)


def always(**how: Any) -> Callable[[int], dict[str, Any]]:
    """Return what every seed's engine has."""
    return lambda _: how


def states(**how: Any) -> Callable[[int], dict[str, Any]]:
    """Return slots so few that one text runs at a time, up to so many that snapshots stay."""
    return lambda seed: {"state_slots": 3 + 2 * seed, **how}


def windows(**how: Any) -> Callable[[int], dict[str, Any]]:
    """Return windows with blocks of their own."""
    return lambda seed: {"windows": few_windows(seed), **how}


def dated(policy: str) -> Callable[[int], dict[str, Any]]:
    """Return promises and deadlines of the requests' own, and of the server."""
    few = {"policy": policy, "promised": 0.8, "requests": 16, "block_count": 20}
    slo = NO_SLO, Slo(ttft=1.0, tpot=0.01)
    return lambda seed: {**few, "slo": slo[seed % 2], **DATES[seed % 4]}


LIVES = {
    **{
        f"{depth} rounds deep": Lives(
            always(pipeline_depth=depth, block_count=24),
            FOUND | {"refused": 0, "preemptions": 0, "search left": 0},
            seeds=8,
        )
        for depth in (1, 2)
    },
    **{
        f"two rounds in flight, {how}": Lives(always(run_ahead=True, **how), SOME | {"overrun": 0})
        for how in ({}, {"reckless": False}, {"block_count": 16}, {"bugs": 0.003}, {"odd": 0.2})
    },
    # 0.23 of them over 200 seeds, and 0.09 to 0.54 over 20: rounds that are lost twice.
    "a target lost with two rounds in flight computes both again": Lives(
        lambda seed: {"run_ahead": True, "lost": 0.08, "spare": bool(seed % 2), "late": 0.02},
        KEPT,
        seeds=8,
        restarts=1 / 2,
    ),
    **{
        f"recurrent states, {how}": Lives(states(**how), FOUND | more)
        for how, more in (
            ({}, {}),
            ({"run_ahead": True}, {}),
            ({"block_count": 14}, {"preemptions": 0}),
            ({"block_count": 14, "run_ahead": True}, {"preemptions": 0}),
            ({"run_ahead": True, "lost": 0.1}, {"recoveries": 2, DIES: 0}),
            ({"lost": 0.1, "spare": True}, {"recoveries": 2, DIES: 0}),
            ({"bugs": 0.003}, {}),
        )
    },
    **{
        f"windows, {how}": Lives(windows(**how), FOUND | more)
        for how, more in (
            ({}, {}),
            ({"run_ahead": True}, {}),
            ({"block_count": 14}, {}),
            ({"run_ahead": True, "lost": 0.1}, {"recoveries": 2}),
            ({"lost": 0.1, "spare": True}, {"recoveries": 2}),
            ({"bugs": 0.003}, {}),
        )
    },
    **{
        f"a promise of the server, lost={lost}": Lives(
            always(lost=lost, slo=Slo(ttft=0.5, tpot=0.0001), block_count=16),
            {"finished": 25, "preemptions": 0},
        )
        for lost in (0.0, 0.05)
    },
    **{
        f"own promises, {policy}": Lives(dated(policy), DATED, seeds=12, at_most=("unmet", 5))
        for policy in ("serve", "last")
    },
    "own promises, refuse": Lives(dated("refuse"), DATED | {"unmet": 5}, seeds=12),
    "a lost target is only a pause": Lives(
        always(lost=0.05, recovers=False),
        {"restarts": 8, "finished": 25, "search finished": 1},
        seeds=12,
    ),
    **{
        f"pages outlive the target, spare={spare}": Lives(
            always(lost=0.05, spare=spare), KEPT | {"search finished": 3}, seeds=12, restarts=1 / 4
        )
        for spare in (False, True)
    },
    "segments": Lives(lambda seed: {"blended": 0.6, **LOSSES[seed % 4]}, BLENDS, seeds=8),
    "segments while others run ahead": Lives(
        lambda seed: {
            **{"blended": 0.6, "run_ahead": True, "reckless": seed % 3 == 0},
            **LOSSES[seed % 4],
        },
        BLENDS | {"overrun": 5},
        seeds=8,
    ),
    "adapters": Lives(
        lambda seed: {
            **{"adapted": 0.7, "run_ahead": seed % 3 == 1, "store": seed % 3 == 2},
            **LOSSES[seed % 4],
        },
        ADAPTED | {"preemptions": 1, "recoveries": 1},
        seeds=18,
    ),
    **{
        f"prompts that are read, {how}": Lives(
            always(reading=0.5, block_count=18, **how),
            {"reading finished": 0, "finished": 0, "preemptions": 0, "prefix_hits": 0},
        )
        for how in (
            {},
            {"lost": 0.1},
            {"run_ahead": True, "lost": 0.08},
            {"bugs": 0.003, "pipeline_depth": 2},
            {"store": True},
            {"promised": 0.5, "policy": "refuse"},
        )
    },
}
"""What changes no text: every request has one last word, and the plain text."""


@pytest.mark.parametrize("name", LIVES)
def test_no_text_is_changed(name: str) -> None:
    lives = LIVES[name]
    settings = [Setting(seed, **lives.setting(seed)) for seed in range(lives.seeds)]
    counters = sum((run(setting).counters for setting in settings), Counter[str]())
    missed = {each: counters[each] for each, n in lives.counts.items() if counters[each] <= n}
    assert not missed, counters
    if lives.restarts is not None:
        assert counters["restarts"] < lives.restarts * counters["recoveries"], counters
    assert counters["failed"] == 0
    assert counters[lives.at_most[0]] <= lives.at_most[1], counters


def test_one_seed_gives_one_schedule() -> None:
    first, second = run(Setting(7)), run(Setting(7))
    assert first.counters == second.counters


# --- a second tier --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seeds", "how", "counts"),
    [
        (
            range(16, 21),
            {"requests": 18, "block_count": 22},
            {"store_hits": 30, "returned": 0, "finished": 30},
        ),
        (range(4), {}, {"state_hits": 10, "store_hits": 20, "finished": 50}),
        (range(4), {"run_ahead": True}, {"state_hits": 10, "store_hits": 20, "finished": 50}),
    ],
    ids=["blocks", "states", "states, two rounds in flight"],
)
def test_what_comes_from_a_second_tier_is_what_was_lost(
    seeds: range, how: dict[str, Any], counts: dict[str, int]
) -> None:
    counters = Counter[str]()
    for seed in seeds:
        kept: dict[str, Any] = {"kept": {}}
        if "state_hits" in counts:
            kept |= {"kept_states": {}, "state_slots": 4 + seed % 12}
        else:
            kept |= {"blended": 0.4 * (seed % 2)}
        for server in range(2):  # the second one finds what the first has kept
            setting = Setting(2 * seed + server, store=True, lost=0.02, bugs=0.003, **kept, **how)
            counters += run(setting).counters
    assert not {each: counters[each] for each, n in counts.items() if counters[each] <= n}
    assert counters["failed"] == 0


def test_a_peer_that_is_killed_while_it_hands_blocks_over_costs_a_miss() -> None:
    counters = sum(map(run_with_peers, range(5)), Counter[str]())
    counts = {"peers_killed": 6, "peers_altered": 2, "store_hits": 12, "finished": 45}
    assert not {each: counters[each] for each, n in counts.items() if counters[each] <= n}, counters
    assert counters["failed"] == 0
