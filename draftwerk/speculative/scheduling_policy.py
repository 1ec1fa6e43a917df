"""The policy of a scheduler: whose turn it is, how much a round holds, and who is not served.

The plain one serves by priority and age, fills its rounds, and reads prompts one after another.
"""

from collections.abc import Callable, Collection
from collections.abc import Sequence as Ordered
from math import inf
from typing import NamedTuple

from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.load.size_limits import RoundLimits
from draftwerk.speculative.rounds import Round, StepReport
from draftwerk.speculative.running_set import AGING_ROUNDS, RunningSet, queue_key
from draftwerk.speculative.sequence import RoundPlan, Sequence


class Rejection(NamedTuple):
    """A request that is not served, and why."""

    sequence: Sequence
    """Any of it; no text of it was delivered."""
    finish_reason: str
    error: str
    """Why, in words for the client."""
    retry_after_s: float = 0.0
    """When it could have been served in time; 0 if that is over."""


class Policy:
    """Decisions of a scheduler that change when a text is served, and never the text."""

    def __init__(self, running_set: RunningSet, limits: RoundLimits, cost: StepCost) -> None:
        """`cost` is that of the target's steps."""
        self.running_set = running_set
        self.limits = limits
        self.cost = cost
        self.tokens_max = limits.tokens_max
        """Tokens of the largest round."""

    def key(self, sequence: Sequence) -> int:
        """Return a new sequence's place in the queue; the least key goes first."""
        # Rounds count on for ever, so each one that waits is the most urgent in the end.
        return sequence.request.priority * AGING_ROUNDS + self.running_set.stats.rounds

    def make_way(self) -> None:
        """Preempt what is less urgent than the first that waits, if that has room then."""
        self.running_set.preempt_for_first(self.limits.rows_max)

    def plan(self, rounds: Collection[tuple[Round, Ordered[Sequence]]]) -> RoundPlan | None:
        """Return an empty plan of the next round, beside those under way.

        None while their answers have to be awaited.
        """
        self.make_way()
        running_set = self.running_set
        return RoundPlan(running_set.pools, running_set.preempt_last, running_set.finished_ids)

    def tokens(self, decoding: list[Sequence], reading: list[Sequence]) -> int:
        """Return how many tokens the next round may hold."""
        return self.tokens_max

    def unread(self, plan: RoundPlan) -> int:
        """Return how many tokens prompts could read in a round, up to all of it."""
        running = self.running_set.running.values()
        reading = [text for text in running if plan.may_read(text)]
        free = self.limits.rows_max - len(running)
        # No more than there are rows for: the others read nothing in this round.
        entering = [*self.running_set.waiting][: max(0, free)]
        prompts = (text for text in (*reading, *entering) if text.pending > 1)
        return min(plan.tokens_max, sum(text.unread for text in prompts if not text.held_back))

    def read(self, plan: RoundPlan, reading: list[Sequence]) -> None:
        """Add rows of prompts to a round, and admit waiting sequences to it."""
        running, waiting = self.running_set.running, self.running_set.waiting
        for sequence in sorted(reading, key=queue_key):
            if plan.tokens_left and sequence.sequence_id in running:
                plan.add(sequence, plan.tokens_left)
        while plan.tokens_left and len(running) < self.limits.rows_max:
            first = waiting.first_ready
            # None of those behind it instead: small requests would keep a large one out for ever.
            if first is None or not self.running_set.admit(first):
                return
            waiting.remove(first)
            if not first.held_back:
                plan.add(first, plan.tokens_left)

    def learn(self, report: StepReport, interval_ms: float | None) -> None:
        """Take in what a step cost, and how long its round took if another followed at once."""
        self.cost.learn(report.load, report.device_ms)

    def ended(self, sequence: Sequence, length: int) -> None:
        """Take in that a text has ended after so many tokens."""

    def reject(self, now_s: float) -> list[Rejection]:
        """Return the requests that are to end unserved."""
        return []

    def wakes_s(self) -> float:
        """Return when `reject` is due though nothing else happens; infinite if never."""
        return inf

    def check(self) -> None:
        """Assert every invariant."""


PolicyFactory = Callable[[RunningSet, RoundLimits, StepCost], Policy]
