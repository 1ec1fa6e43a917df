"""Loads for the simulation of routers: sessions whose prompts grow, on shared prefixes.

mooncake  long prompts, of which about 40 % were sent before, short answers; Poisson arrivals
          (after the published trace of Mooncake, FAST 2025: mean input 7 600 tokens)
agents    20 shared prefixes of tools and instructions, sessions of 4 to 16 turns with a tool
          call between two
hot       as agents, but six requests of ten begin with the same prefix
cold      as agents, but all sessions begin within a tenth of a second, before anything is cached
          and before any replica has reported what it was sent
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

BLOCK = 128
"""Tokens; the simulation's prefix caches hold whole blocks."""


@dataclass(slots=True)
class Session:
    """One client: a prompt that grows with each turn."""

    keys: list[int]
    """Blocks of the next prompt."""
    turns: int
    arrival_s: float
    session_id: int
    grows: tuple[int, int]
    """Blocks that the answer and the client's next words add, at least and at most."""
    pause_s: tuple[float, float]
    outputs: tuple[int, int]
    """Tokens of an answer."""


@dataclass(slots=True)
class KeyCounter:
    """Keys that nothing has yet; a copy goes on by itself, as one of `itertools` may not."""

    following: int

    def __call__(self) -> int:
        self.following += 1
        return self.following - 1


@dataclass(slots=True)
class RequestTrace:
    """What arrives: sessions by their first request."""

    name: str
    sessions: list[Session]
    new_key: Callable[[], int] = field(default_factory=lambda: KeyCounter(2**40))


def mooncake(rng: random.Random, rate: float, seconds: float) -> RequestTrace:
    """Return conversations over long documents; `rate` is of requests in a second."""
    new_key = KeyCounter(1)
    system = [[new_key() for _ in range(4)] for _ in range(3)]
    sessions: list[Session] = []
    at = 0.0
    while at < seconds:
        turns = 1 + min(4, int(rng.expovariate(0.9)))
        at += rng.expovariate(rate / 1.75)  # the mean of turns
        size = min(400, max(4, int(rng.lognormvariate(3.6, 0.9))))
        keys = [*rng.choice(system), *(new_key() for _ in range(size))]
        sessions.append(Session(keys, turns, at, len(sessions), (2, 12), (2.0, 15.0), (60, 400)))
    return RequestTrace("mooncake", sessions, new_key)


def agents(rng: random.Random, rate: float, seconds: float, hot: float = 0.0) -> RequestTrace:
    """Return agents on shared prefixes; with `hot`, that share of them has the same one."""
    new_key = KeyCounter(1)
    prefixes = [[new_key() for _ in range(rng.randint(16, 48))] for _ in range(20)]
    weights = [1 / (rank + 1) for rank in range(len(prefixes))]
    sessions: list[Session] = []
    at = 0.0
    while at < seconds:
        turns = rng.randint(4, 16)
        at += rng.expovariate(rate / 10)
        prefix = prefixes[0] if rng.random() < hot else rng.choices(prefixes, weights)[0]
        keys = [*prefix, *(new_key() for _ in range(rng.randint(1, 4)))]
        sessions.append(Session(keys, turns, at, len(sessions), (1, 6), (0.3, 4.0), (40, 160)))
    return RequestTrace("hot" if hot else "agents", sessions, new_key)


COLD_S = 0.1
COLD_SESSIONS = 2.0
"""For each request in a second of the usual rate."""


def cold(rng: random.Random, rate: float, seconds: float) -> RequestTrace:
    """Return agents that all begin at once."""
    trace = agents(rng, 10 * COLD_SESSIONS * rate / COLD_S, COLD_S)
    return RequestTrace("cold", trace.sessions, trace.new_key)


TRACES: dict[str, Callable[[random.Random, float, float], RequestTrace]] = {
    "mooncake": mooncake,
    "agents": agents,
    "hot": lambda rng, rate, seconds: agents(rng, rate, seconds, hot=0.6),
    "cold": cold,
}
