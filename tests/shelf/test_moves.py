"""Which model is loaded and which leaves: rules one by one, and a simulated server by them."""

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.shelf import moves
from draftwerk.shelf.moves import (
    DRAIN_GUESS_S,
    TURN_S,
    Move,
    check,
    enough,
    expected_wait_s,
    has_place,
    next_move,
)
from draftwerk.shelf.shelved import Shelved

GB = 2**30


def ready(name: str, size: int = GB, **fields: object) -> Shelved:
    """Return a loaded model, used at time 0 unless told otherwise."""
    return Shelved(name=name, size=size, phase="ready", **fields)  # type: ignore[arg-type]


def wanted(name: str, size: int = GB, since: float = 0.0) -> Shelved:
    """Return a model that a request waits for."""
    return Shelved(name=name, size=size, waiting=1, wanted_s=since)


def test_the_idle_model_that_was_used_least_recently_makes_room() -> None:
    models = [ready("a", used_s=5.0), ready("b", used_s=4.0), wanted("c")]
    assert next_move(models, 2 * GB, 6.0) == Move("b", "leaving")
    models[1].enter("leaving", 6.0)
    assert next_move(models, 2 * GB, 6.0) is None, "its room is enough"


def test_a_busy_model_leaves_only_when_its_turn_is_over() -> None:
    models = [ready("a", users=1), wanted("b")]
    assert next_move(models, GB, TURN_S - 0.1) is None
    assert next_move(models, GB, TURN_S) == Move("a", "leaving")


def test_pinned_models_stay_and_one_without_a_place_holds_up_nobody() -> None:
    models = [ready("a", is_pinned=True), ready("b", is_kept=True), wanted("c"), wanted("d", 1)]
    assert not has_place(models[2], models, 2 * GB + 1)
    assert next_move(models, 2 * GB + 1, 1e6) == Move("d", "loading")


def test_an_idle_model_leaves_when_it_was_kept_long_enough() -> None:
    model = ready("a", keep_alive_s=5.0)
    assert next_move([model], GB, 4.9) is None
    assert next_move([model], GB, 5.0) == Move("a", "leaving")
    model.users = 1
    assert next_move([model], GB, 50.0) is None
    model.users, model.is_pinned = 0, True
    assert next_move([model], GB, 50.0) is None


@given(st.lists(st.integers(1, 9), max_size=6), st.integers(-3, 30))
def test_no_model_leaves_that_is_not_needed(sizes: list[int], missing: int) -> None:
    models = [ready(str(number), size) for number, size in enumerate(sizes)]
    chosen = enough(models, missing)
    freed = sum(each.size for each in chosen)
    if missing <= 0 or sum(sizes) < missing:
        assert chosen == []
    else:
        assert freed >= missing
        assert all(freed - each.size < missing for each in chosen[:-1])


def test_the_wait_is_what_is_left_of_loads_and_turns() -> None:
    a, b = ready("a", users=1, load_s=1.0), wanted("b")
    b.load_s = 2.0
    assert expected_wait_s(a, [a, b], 2 * GB, 4.0) == 0.0
    assert expected_wait_s(b, [a, b], 2 * GB, 4.0) == 2.0
    assert expected_wait_s(b, [a, b], GB, 4.0) == 2.0 + TURN_S - 4.0 + DRAIN_GUESS_S
    a.users = 0
    assert expected_wait_s(b, [a, b], GB, 4.0) == 2.0
    b.enter("loading", 4.0)
    assert expected_wait_s(b, [a, b], 2 * GB, 5.5) == 0.5
    c = wanted("c", since=4.5)
    c.load_s = 3.0
    assert expected_wait_s(c, [a, b, c], 3 * GB, 4.0) == 2.0 + 3.0


# --- a simulated server ---------------------------------------------------------------------------

LOAD_S = 2.0
WAIT_MAX_S = 40.0


@dataclass
class SimulatedServer:
    """A server by the rules of `moves`, with requests of random lengths, on virtual time."""

    models: list[Shelved]
    room: int
    random: Random
    now: float = 0.0
    events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)  # pyright: ignore
    serials: Iterator[int] = field(default_factory=count)
    waits: list[float] = field(default_factory=list)  # pyright: ignore
    live: dict[str, int] = field(default_factory=dict)  # pyright: ignore
    queued: dict[str, list[tuple[float, float]]] = field(default_factory=dict)  # pyright: ignore

    def at(self, delay_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + delay_s, next(self.serials), act))

    def ask(self, model: Shelved, length_s: float) -> None:
        """Let a request arrive."""
        if model.phase == "ready":
            self.begin(model, length_s, self.now)
            return
        model.want(self.now)
        model.waiting += 1
        self.queued.setdefault(model.name, []).append((self.now, length_s))

    def begin(self, model: Shelved, length_s: float, arrived: float) -> None:
        self.waits.append(self.now - arrived)
        model.users += 1
        model.used_s = self.now
        self.live[model.name] = self.live.get(model.name, 0) + 1
        self.at(length_s, lambda: self.end(model))

    def end(self, model: Shelved) -> None:
        assert model.phase in ("ready", "leaving"), "a live request has lost its model"
        model.users -= 1
        model.used_s = self.now

    def loaded(self, model: Shelved) -> None:
        model.load_s = LOAD_S
        model.enter("ready", self.now)
        for arrived, length_s in self.queued.pop(model.name, []):
            model.waiting -= 1
            self.begin(model, length_s, arrived)

    def step(self) -> None:
        """Make every move that is due, as the shelf does."""
        while move := next_move(self.models, self.room, self.now):
            model = next(each for each in self.models if each.name == move.name)
            model.enter(move.phase, self.now)
            if move.phase == "loading":
                self.at(LOAD_S, lambda model=model: self.loaded(model))  # type: ignore[misc]
        for model in self.models:
            if moves.may_unload(model):
                model.enter("unloaded", self.now)
        check(self.models, self.room)

    def run(self, until_s: float) -> None:
        while self.now < until_s and (self.events or any(self.queued.values())):
            self.step()
            when = self.events[0][0] if self.events else inf
            self.now = min(when, self.now + 0.5)
            while self.events and self.events[0][0] <= self.now:
                heapq.heappop(self.events)[2]()


def simulated(seed: int, requests: int = 200) -> SimulatedServer:
    """Return a server of three models with room for two, when all requests have been answered."""
    random = Random(seed)
    sizes = [random.randint(40, 100) for _ in range(3)]
    models = [Shelved(name=name, size=size, keep_alive_s=20.0)
              for name, size in zip("abc", sizes, strict=True)]  # fmt: skip
    server = SimulatedServer(models, sum(sizes) - min(sizes), random)
    for _ in range(requests):
        model, length = random.choice(models), random.uniform(1.0, 9.0)
        server.at(
            random.uniform(0.0, 100.0),
            lambda model=model, length=length: server.ask(model, length),  # type: ignore[misc]
        )
    server.run(10_000.0)
    assert len(server.waits) == requests, "a request was never answered"
    return server


SEEDS = range(60)


@pytest.mark.parametrize("seed", SEEDS)
def test_all_are_answered_within_the_room_and_no_live_request_loses_its_model(seed: int) -> None:
    server = simulated(seed)
    assert max(server.waits) < WAIT_MAX_S


def disturbed(seeds: Sequence[int] = SEEDS) -> bool:
    """Return whether the simulation finds something wrong."""
    for seed in seeds:
        try:
            assert max(simulated(seed).waits) < WAIT_MAX_S
        except AssertionError:
            return True
    return False


def test_planted_a_model_that_is_unloaded_under_a_live_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(moves, "may_unload", lambda model: model.phase == "leaving")  # pyright: ignore
    assert disturbed()


def test_planted_a_model_whose_load_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(models: Sequence[Shelved]) -> int:
        return sum(each.size for each in models if each.phase == "ready")

    whole = moves.taken
    monkeypatch.setattr(moves, "taken", taken)

    def check_whole(models: Sequence[Shelved], room: int) -> None:
        assert whole(models) <= room

    monkeypatch.setattr(f"{__name__}.check", check_whole)
    assert disturbed()


def test_planted_busy_models_that_never_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moves, "TURN_S", inf)
    assert disturbed()
