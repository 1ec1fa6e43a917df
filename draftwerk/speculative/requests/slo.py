"""Service-level objectives: `ttft=1s`, `tpot=50ms`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from draftwerk.speculative.requests.times import SequenceTimes

OBJECTIVE = re.compile(r"\s*(\w+)\s*[=<]\s*(\d+(?:\.\d+)?)\s*(ms|s)?\s*")
TIME = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s)?\s*")
TIME_MAX_S = 86400.0
SloPolicy = Literal["serve", "last", "refuse"]
"""The policy for a request that cannot be kept its promise: it is served in its turn, behind those
that can be kept theirs, or refused."""


class Slo(msgspec.Struct, frozen=True, kw_only=True):
    """A promise to readers, in seconds; 0 where it promises nothing."""

    ttft: Annotated[float, Meta(ge=0)] = 0.0
    """From a request's arrival to its first token."""
    tpot: Annotated[float, Meta(ge=0)] = 0.0
    """Between two tokens of a text, on average."""

    def __bool__(self) -> bool:
        """Return whether anything is promised."""
        return bool(self.ttft or self.tpot)

    def over(self, other: "Slo") -> "Slo":
        """Return it with the other's limits where it has none."""
        return Slo(ttft=self.ttft or other.ttft, tpot=self.tpot or other.tpot)

    def is_kept(self, ttft_s: float, tpot_s: float | None) -> bool:
        """Return whether a request's times keep it; without a second token there is no tpot."""
        return not (
            (self.ttft and ttft_s > self.ttft)
            or (self.tpot and tpot_s is not None and tpot_s > self.tpot)
        )


NO_SLO = Slo()


def read_time(given: str | float) -> float:
    """Return a time such as `500ms`, `2s` or 0.5 in seconds. Raises ValueError with a sentence."""
    found = TIME.fullmatch(str(given))
    seconds = float(found[1]) / (1000 if found[2] == "ms" else 1) if found else 0.0
    if not 0.0 < seconds <= TIME_MAX_S:
        raise ValueError("a time above 0 and up to a day, such as 500ms or 2s")
    return seconds


def read_objective(text: str) -> tuple[str, float]:
    """Return the metric and its limit in seconds. Raises ValueError with a sentence."""
    found = OBJECTIVE.fullmatch(text)
    metrics = Slo.__struct_fields__
    if not found or found[1] not in metrics:
        raise ValueError(f"no SLO {text!r}: write {', '.join(metrics)} = number and ms or s")
    return found[1], float(found[2]) / (1000 if found[3] == "ms" else 1)


def read_slo(texts: Iterable[str]) -> Slo:
    """Return what several texts promise; each may hold more than one. Raises ValueError."""
    limits: dict[str, float] = {}
    for text in (part for one in texts for part in one.split(",")):
        metric, limit_s = read_objective(text)
        if not limit_s or limits.setdefault(metric, limit_s) != limit_s:
            raise ValueError(f"no SLO {text!r}: one limit above 0 for each of ttft and tpot")
    return Slo(**limits)


@dataclass(slots=True)
class Deadlines(SequenceTimes):
    """Times of one sequence, and what its reader was promised, counted from its arrival."""

    slo: Slo = NO_SLO
    """The promise to its reader."""
    expires_s: float = inf
    """When it fails unless its text has begun by then."""
    had_tokens: bool = False
    """Whether its reader was sent tokens of its request before a crash."""
    demoted: bool = False
    """Whether it was put behind others because its first token would be late in any case."""

    @property
    def due_s(self) -> float:
        """When its first token is due."""
        ttft = self.slo.ttft
        return min(self.arrived_s + ttft, self.expires_s) if ttft else self.expires_s

    def ahead_s(self, generated: int, now_s: float) -> float:
        """Return by how much its tokens came before they were due, or after if below 0."""
        if not self.first_count:
            return 0.0
        due_s = self.first_s + self.slo.tpot * (generated - self.first_count)
        return due_s - now_s
