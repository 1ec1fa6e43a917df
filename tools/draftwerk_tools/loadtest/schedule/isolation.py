"""How the runs of a sweep are kept out of each other's caches.

A server that keeps prefixes or finished outputs answers a question faster the second time, so a
variant that is measured later looks better, or worse, than it is. Where the server separates caches
by `cache_salt`, each run has a salt of its own and variants are asked the same questions; elsewhere
no question is asked in two runs.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from draftwerk_tools.loadtest.options import LoadTestOptions

SALT = "cache_salt"
MADE_UP = "synthetic"
"""The workload in which another seed makes other questions."""
SEEDS_APART = 1000
"""More than the groups of questions in a sweep, so that sweeps with other seeds have others."""


@dataclass(slots=True, kw_only=True)
class Isolation:
    """Chooses seed, questions and cache salt of each run of a sweep: none meets another's cache.

    `key` separates its salts from another sweep's. `distinct` is how many questions the workload
    has; None means as many as are sent.
    """

    key: str
    salted: bool
    distinct: int | None
    seed: int
    _runs: int = field(default=0, init=False)
    _groups: int = field(default=0, init=False)
    """Runs that are asked the same are one group."""
    _skip: int = field(default=0, init=False)
    _asked: int = field(default=0, init=False)
    _uncounted: bool = field(default=False, init=False)
    _by_hand: bool = field(default=False, init=False)

    def placed(self, at: LoadTestOptions, side_by_side: bool = False) -> LoadTestOptions:
        """Return the options of the next run.

        With `side_by_side` it is to be compared with the run before, and sends the same if allowed.
        """
        if not (side_by_side and self.salted):
            self._begin_group(at)
        self._runs += 1
        if at.workload == MADE_UP or at.requests is None:
            at = replace(at, seed=SEEDS_APART * self.seed + self._groups)
        else:
            at = replace(at, seed=self.seed, skip=self._skip)
        return self._with_salt(at) if self.salted else at

    def notes(self) -> Iterator[str]:
        """Return how the runs placed so far are isolated, and where they are not."""
        if self._by_hand:
            yield "cache_salt is given by hand: runs with the same one share their caches"
        elif self.salted:
            yield (
                "each run has a cache_salt of its own, so none finds what another left in a cache; "
                "variants at one load are asked the same questions"
            )
        else:
            yield (
                "the server knows no cache_salt, so no question is asked in two runs; variants at "
                "one load are asked different ones"
            )
            yield from self.repeated()

    def repeated(self) -> Iterator[str]:
        """Return where a question may have been sent in two runs."""
        if self.distinct is None:
            return
        if self._uncounted:
            yield "runs that end by time are asked the file in orders of their own, which overlap"
        elif self._asked > self.distinct:
            yield (
                f"{self._asked} questions are asked of the workload's {self.distinct}: some "
                "come again, and a cache may answer them"
            )

    def _begin_group(self, at: LoadTestOptions) -> None:
        self._groups += 1
        if at.workload != MADE_UP:
            self._skip = self._asked
            self._asked += at.requests or 0
            self._uncounted |= at.requests is None

    def _with_salt(self, at: LoadTestOptions) -> LoadTestOptions:
        fields = msgspec.json.decode(at.extra or "{}", type=dict[str, object])
        if SALT in fields:
            self._by_hand = True
            return at
        salted = fields | {SALT: f"loadtest {self.key} {self._runs}"}
        return replace(at, extra=msgspec.json.encode(salted).decode())
