"""Which model is loaded next, and which one leaves for it. Pure: time is an argument.

    wanted ── there is room ──> loading ──> ready ── idle too long, or room is needed ──> leaving
       ^                                                                                    │
       └──────────────── asked for again ──────────────── no request is live ── unloaded <──┘

Models are loaded one after the other in the order in which they were first asked for. Room comes
from the idle model that was used least recently. Where all are busy, the one that was loaded first
leaves once its turn is over: it takes no more requests, and is unloaded when those it has are done.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from draftwerk.shelf.shelved import Shelved

TURN_S = 10.0
"""For which a busy model stays loaded while others wait: several times what a load takes."""
DRAIN_GUESS_S = 5.0
"""For the requests of a model that leaves."""
WAIT_MIN_S = 0.5


@dataclass(frozen=True, slots=True)
class Move:
    """A model's next phase."""

    name: str
    phase: Literal["loading", "leaving"]


def next_move(models: Sequence[Shelved], room: int, now: float) -> Move | None:
    """Return what is to be done next, None if nothing is; `room` is for all loaded models."""
    for model in models:
        if is_expired(model, now):
            return Move(model.name, "leaving")
    line = [each for each in in_line(models, now) if has_place(each, models, room)]
    if not line or any(model.phase == "loading" for model in models):
        return None
    missing = taken(models) + line[0].size - room
    if missing <= 0:
        return Move(line[0].name, "loading")
    missing -= sum(model.size for model in models if model.phase == "leaving")
    for victim in enough(victims(models, now), missing):
        return Move(victim.name, "leaving")
    return None


def taken(models: Sequence[Shelved]) -> int:
    """Return the bytes of models that are loaded, wholly or in part."""
    return sum(model.size for model in models if model.phase != "unloaded")


def in_line(models: Sequence[Shelved], now: float) -> list[Shelved]:
    """Return the models that are to be loaded, the one wanted longest first."""
    waiting = [model for model in models if model.phase == "unloaded" and model.is_wanted(now)]
    return sorted(waiting, key=lambda model: model.wanted_s or 0.0)


def is_expired(model: Shelved, now: float) -> bool:
    """Return whether a model has been idle for as long as it is kept."""
    return model.is_idle and not model.stays and now >= model.used_s + model.keep_alive_s


def may_unload(model: Shelved) -> bool:
    """Return whether a leaving model can go now."""
    return model.phase == "leaving" and not model.users


def victims(models: Sequence[Shelved], now: float) -> list[Shelved]:
    """Return the models that can leave for another, the first to go first."""
    ready = [model for model in models if model.phase == "ready" and not model.stays]
    idle = sorted((each for each in ready if each.is_idle), key=lambda each: each.used_s)
    busy = [each for each in ready if not each.is_idle and now >= each.since_s + TURN_S]
    return idle + sorted(busy, key=lambda each: each.since_s)


def enough(candidates: Sequence[Shelved], missing: int) -> list[Shelved]:
    """Return the first candidates that together have the missing bytes, without those that the
    later ones make needless; nothing where all of them are too few."""
    chosen: list[Shelved] = []
    for candidate in candidates:
        if missing <= 0:
            break
        chosen.append(candidate)
        missing -= candidate.size
    if missing > 0:
        return []
    for candidate in reversed(chosen[:-1]):
        if candidate.size <= -missing:
            chosen.remove(candidate)
            missing += candidate.size
    return chosen


def has_place(model: Shelved, models: Sequence[Shelved], room: int) -> bool:
    """Return whether a model fits beside those that stay."""
    others = sum(each.size for each in models if each.stays and each is not model)
    return others + model.size <= room


def expected_wait_s(model: Shelved, models: Sequence[Shelved], room: int, now: float) -> float:
    """Return how long a request for a model will probably wait until it is loaded."""
    loading = sum(
        max(WAIT_MIN_S, each.load_guess_s - (now - each.since_s))
        for each in models
        if each.phase == "loading"
    )
    if model.phase == "ready":
        return 0.0
    if model.phase == "loading":
        return loading
    ahead = [each for each in in_line(models, now) if each is not model]
    if model.is_wanted(now):
        ahead = [each for each in ahead if (each.wanted_s or 0.0) < (model.wanted_s or now)]
    line = [*ahead, model]
    loads = sum(each.load_guess_s for each in line)
    missing = taken(models) + sum(each.size for each in line) - room
    return loading + loads + room_wait_s(models, missing, now)


def room_wait_s(models: Sequence[Shelved], missing: int, now: float) -> float:
    """Return how long it will probably take until so many bytes are free."""
    missing -= sum(each.size for each in models if each.is_idle and not each.stays)
    wait_s = 0.0
    busy = (each for each in models if each.phase in ("ready", "leaving") and not each.is_idle)
    for each in sorted(busy, key=lambda each: each.since_s):
        if missing <= 0:
            break
        if not each.stays:
            turn_s = TURN_S - (now - each.since_s) if each.phase == "ready" else 0.0
            wait_s = max(wait_s, max(0.0, turn_s) + (DRAIN_GUESS_S if each.users else 0.0))
            missing -= each.size
    return wait_s


def check(models: Sequence[Shelved], room: int) -> None:
    """Assert what must hold at any time."""
    for model in models:
        model.check()
    assert taken(models) <= room, "the loaded models take more than their room"
    assert sum(model.phase == "loading" for model in models) <= 1
