"""Replicas on virtual time: prefill in chunks beside decoding rows, and an LRU prefix cache.

A round computes up to `chunk` prompt tokens and a token for each decoding row:

    round_s = base_s + prefill tokens / prefill_s + row_s * rows
"""

import random
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import Any

from benchmarks.cluster.routers import ByCost
from benchmarks.cluster.traces import BLOCK, RequestTrace, Session
from draftwerk_cluster.door_connection import LOADS_MAX, REPORT_S
from draftwerk_cluster.replica_load import Reservation

TTFT_S, TPOT_S = 2.0, 0.06
"""What a good request keeps."""


@dataclass(frozen=True, slots=True)
class Speed:
    """One replica: an 8B model on one GPU, roughly; only ratios matter for the comparison."""

    base_s: float = 0.012
    prefill_tokens_s: float = 9000.0
    row_s: float = 0.0002
    chunk: int = 512
    cache_blocks: int = 1600


@dataclass(slots=True, eq=False)
class Job:
    """One request at its replica."""

    session: Session
    arrived_s: float
    keys: tuple[int, ...]
    outputs: int
    left: float = 0.0
    """Prompt tokens to compute."""
    made: int = 0
    first_s: float = 0.0
    ended_s: float = 0.0
    hit_tokens: int = 0
    reservation: Reservation | None = None
    door: int = 0


@dataclass(slots=True, eq=False)
class FleetReplica:
    """One replica's queue, rows and cache."""

    index: int
    speed: Speed
    cached: OrderedDict[int, None] = field(default_factory=OrderedDict[int, None])
    queue: deque[Job] = field(default_factory=deque[Job])
    rows: list[Job] = field(default_factory=list[Job])
    is_running: bool = False
    busy_s: float = 0.0
    added: set[int] = field(default_factory=set[int])
    dropped: set[int] = field(default_factory=set[int])
    received: dict[int, int] = field(default_factory=dict[int, int])
    waiting_max: int = 0

    @property
    def open_requests(self) -> int:
        return len(self.queue) + len(self.rows)

    def depth(self, keys: Sequence[int]) -> int:
        """Return how many of the first blocks are cached."""
        for index, key in enumerate(keys):
            if key not in self.cached:
                return index
        return len(keys)

    def take(self, job: Job) -> None:
        depth = self.depth(job.keys)
        for key in job.keys[:depth]:
            self.cached.move_to_end(key)
        job.hit_tokens = depth * BLOCK
        job.left = max(1, (len(job.keys) - depth) * BLOCK)
        self.queue.append(job)
        self.waiting_max = max(self.waiting_max, len(self.queue))

    def keep(self, keys: Sequence[int]) -> None:
        """Put blocks into the cache, and the oldest out of it."""
        for key in keys:
            if key not in self.cached:
                self.added.add(key)
                self.dropped.discard(key)
            self.cached[key] = None
            self.cached.move_to_end(key)
        while len(self.cached) > self.speed.cache_blocks:
            key, _ = self.cached.popitem(last=False)
            self.dropped.add(key)
            self.added.discard(key)

    def round(self, now: float) -> tuple[float, list[Job]]:
        """Compute a round; returns its end and the requests that are over then."""
        speed, room, prefilled = self.speed, float(self.speed.chunk), list[Job]()
        while self.queue and room > 0:
            job = self.queue[0]
            part = min(room, job.left)
            job.left -= part
            room -= part
            if job.left <= 0:
                prefilled.append(self.queue.popleft())
        taken = speed.base_s + (speed.chunk - room) / speed.prefill_tokens_s
        taken += speed.row_s * len(self.rows)
        end = now + taken
        self.busy_s += taken
        for job in self.rows:
            job.made += 1
        for job in prefilled:
            job.first_s, job.made = end, 1
            self.keep(job.keys)
        over = [job for job in (*self.rows, *prefilled) if job.made >= job.outputs]
        for job in over:
            job.ended_s = end
        self.rows = [job for job in (*self.rows, *prefilled) if job.made < job.outputs]
        return end, over


@dataclass(slots=True)
class FleetResult:
    """What a run came to."""

    done: list[Job]
    replicas: list[FleetReplica]
    seconds: float

    @property
    def goodput(self) -> float:
        """Requests in a second whose first token and whose pace were in time."""
        return sum(map(is_good, self.done)) / self.seconds

    @property
    def hit_share(self) -> float:
        tokens = sum(len(job.keys) * BLOCK for job in self.done)
        return sum(job.hit_tokens for job in self.done) / max(tokens, 1)

    @property
    def spread(self) -> float:
        """Busiest replica's time over the mean."""
        busy = [each.busy_s for each in self.replicas]
        return max(busy) / max(sum(busy) / len(busy), 1e-9)

    @property
    def queue_max(self) -> int:
        """Most requests that ever waited at one replica."""
        return max(each.waiting_max for each in self.replicas)

    def first_token_s(self, share: float) -> float:
        times = sorted(job.first_s - job.arrived_s for job in self.done)
        return times[min(len(times) - 1, int(share * len(times)))] if times else 0.0


def is_good(job: Job) -> bool:
    pace = (job.ended_s - job.first_s) / max(job.made - 1, 1)
    return job.first_s - job.arrived_s <= TTFT_S and pace <= TPOT_S


@dataclass(slots=True)
class Fleet:
    """A run of one trace under one router."""

    trace: RequestTrace
    router: Any
    replicas: list[FleetReplica]
    seconds: float
    rng: random.Random
    events: list[tuple[float, int, str, Any]] = field(
        default_factory=list[tuple[float, int, str, Any]]
    )
    serial: Any = field(default_factory=count)
    done: list[Job] = field(default_factory=list[Job])
    reports: int = 0

    def run(self) -> FleetResult:
        """Run to the end of the trace's time; what is open then does not count."""
        for session in self.trace.sessions:
            self._at(session.arrival_s, "arrival", session)
        if isinstance(self.router, ByCost):
            self._at(REPORT_S, "report", None)
        while self.events:
            now, _, kind, what = heappop(self.events)
            if now > self.seconds:
                break
            match kind:
                case "arrival":
                    self._arrive(what, now)
                case "round":
                    self._round(what, now)
                case "over":
                    self._over(what, now)
                case _:
                    loads = min(len(self.router.doors), LOADS_MAX)
                    self._report(with_blocks=self.reports % loads == 0)
                    self.reports += 1
                    self._at(now + REPORT_S / loads, "report", None)
        return FleetResult(self.done, self.replicas, self.seconds)

    def _at(self, when: float, kind: str, what: Any) -> None:
        heappush(self.events, (when, next(self.serial), kind, what))

    def _arrive(self, session: Session, now: float) -> None:
        job = Job(session, now, tuple(session.keys), self.rng.randint(*session.outputs))
        replica = self.replicas[self._choose(job, now)]
        replica.take(job)
        if not replica.is_running:
            replica.is_running = True
            self._at(now, "round", replica)

    def _choose(self, job: Job, now: float) -> int:
        if not isinstance(self.router, ByCost):
            return self.router.choose(self.replicas, job.keys, job.session.session_id, now)
        self.router.turn += 1
        job.door = self.router.turn % len(self.router.doors)
        door = self.router.doors[job.door]
        job.reservation = door.choose(job.keys, len(job.keys) * BLOCK, now)
        assert job.reservation is not None
        index = int(job.reservation.replica_id)
        received = self.replicas[index].received
        received[job.door] = received.get(job.door, 0) + 1
        return index

    def _round(self, replica: FleetReplica, now: float) -> None:
        if not replica.queue and not replica.rows:
            replica.is_running = False
            return
        end, over = replica.round(now)
        for job in over:
            self._at(end, "over", (replica, job))
        self._at(end, "round", replica)

    def _over(self, what: tuple[FleetReplica, Job], now: float) -> None:
        replica, job = what
        self.done.append(job)
        if job.reservation is not None:
            self.router.doors[job.door].release(job.reservation)
        session = job.session
        grown = [self.trace.new_key() for _ in range(self.rng.randint(*session.grows))]
        replica.keep([*job.keys, *grown[: job.outputs // BLOCK]])
        session.keys = [*job.keys, *grown]
        session.turns -= 1
        if session.turns > 0:
            self._at(now + self.rng.uniform(*session.pause_s), "arrival", session)

    def _report(self, with_blocks: bool) -> None:
        for replica in self.replicas:
            queued = sum(job.left for job in replica.queue)
            for number, door in enumerate(self.router.doors):
                door.correct(
                    str(replica.index),
                    replica.received.get(number, 0),
                    queued,
                    len(replica.rows),
                    replica.added if with_blocks else (),
                    replica.dropped if with_blocks else (),
                )
            if with_blocks:
                replica.added, replica.dropped = set(), set()


def fleet(size: int, speed: Speed) -> list[FleetReplica]:
    return [FleetReplica(index, speed) for index in range(size)]
