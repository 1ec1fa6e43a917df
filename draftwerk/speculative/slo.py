"""Service-level objectives: `ttft=1s`, `tpot=50ms`."""

import re
from collections.abc import Iterable
from typing import Literal

import msgspec

OBJECTIVE = re.compile(r"\s*(\w+)\s*[=<]\s*(\d+(?:\.\d+)?)\s*(ms|s)?\s*")
TIME = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s)?\s*")
TIME_MAX_S = 86400.0
SloPolicy = Literal["serve", "last", "refuse"]
"""What becomes of a request that cannot be kept its promise: it is served in its turn, behind
those that can be kept theirs, or refused."""


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """What a server promises its readers, in seconds; 0 where it promises nothing."""

    ttft: float = 0.0
    """From a request's arrival to its first token."""
    tpot: float = 0.0
    """Between two tokens of a text, on average."""

    def __bool__(self) -> bool:
        """Return whether anything is promised."""
        return bool(self.ttft or self.tpot)

    def over(self, other: "Promise") -> "Promise":
        """Return it with the other's limits where it has none."""
        return Promise(ttft=self.ttft or other.ttft, tpot=self.tpot or other.tpot)

    def is_kept(self, ttft_s: float, tpot_s: float | None) -> bool:
        """Return whether a request's times keep it; without a second token there is no tpot."""
        return not (
            (self.ttft and ttft_s > self.ttft)
            or (self.tpot and tpot_s is not None and tpot_s > self.tpot)
        )


NOTHING_PROMISED = Promise()


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
    metrics = Promise.__struct_fields__
    if not found or found[1] not in metrics:
        raise ValueError(f"no SLO {text!r}: write {', '.join(metrics)} = number and ms or s")
    return found[1], float(found[2]) / (1000 if found[3] == "ms" else 1)


def read_promise(texts: Iterable[str]) -> Promise:
    """Return what several texts promise; each may hold more than one. Raises ValueError."""
    limits: dict[str, float] = {}
    for text in (part for one in texts for part in one.split(",")):
        metric, limit_s = read_objective(text)
        if not limit_s or limits.setdefault(metric, limit_s) != limit_s:
            raise ValueError(f"no SLO {text!r}: one limit above 0 for each of ttft and tpot")
    return Promise(**limits)
