"""The scheduler: which sequences are in the next round, with how many tokens, in which blocks.

Continuous batching with chunked prefill: every round mixes verify rows and prompt chunks.

running --plan--> in flight --commit--> running --> ended
"""

from collections import Counter
from collections.abc import Callable, Collection
from collections.abc import Sequence as Ordered
from dataclasses import dataclass
from itertools import islice, starmap
from math import inf

from draftwerk.cache.memory import CachePools
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.load.size_limits import RoundLimits
from draftwerk.speculative.load.stats import SchedulerLoad, SchedulerStats
from draftwerk.speculative.rounds import Round, Verdict, VerifiedRow
from draftwerk.speculative.row_parts.step_report import NO_STEP, StepReport
from draftwerk.speculative.running_set import (
    AGING_ROUNDS,
    Extension,
    RequestCheck,
    RunningSet,
    queue_key,
)
from draftwerk.speculative.sequence import RoundPlan, Sequence, SequenceProgress

DRAFT_SHARE = 8
"""The part of a round that rows which decode share, one in so many, even while prompts wait."""
__all__ = ["RoundLimits", "Scheduler"]


class Policy:
    """Decisions that change when a text is served, and never the text: whose turn it is, how much a
    round holds, and who is not served.

    The plain one serves by priority and age, fills its rounds, and reads prompts one after another.
    """

    def __init__(self, running_set: RunningSet, limits: RoundLimits, cost: StepCost) -> None:
        """`cost` is that of the target's steps."""
        self.running_set = running_set
        self.limits = limits
        self.cost = cost
        self.tokens_max = limits.tokens_max

    def key(self, sequence: Sequence) -> int:
        """Return a new sequence's place in the queue; the least key goes first."""
        # Rounds count on for ever, so each one that waits is the most urgent in the end.
        return sequence.request.priority * AGING_ROUNDS + self.running_set.stats.rounds

    def plan(self, rounds: Collection[tuple[Round, Ordered[Sequence]]]) -> RoundPlan | None:
        """Return an empty plan of the next round, beside those under way; None while their answers
        have to be awaited."""
        running_set = self.running_set
        return RoundPlan(running_set.pools, running_set.preempt_last, running_set.finished_ids)

    def tokens(self, decoding: list[Sequence], reading: list[Sequence]) -> int:
        """Return how many tokens the next round may hold."""
        return self.tokens_max

    def unread(self, plan: RoundPlan) -> int:
        """Return how many tokens prompts could read if blocks were free, up to a whole round."""
        running = self.running_set.running.values()
        reading = (text for text in running if not text.held_back and plan.may_read(text))
        # No more than there are rows for: the others read nothing in this round.
        free = max(0, self.limits.rows_max - len(running))
        texts = (*reading, *islice(self.running_set.waiting, free))
        return min(plan.tokens_max, sum(text.unread for text in texts if text.pending > 1))

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

    def reject(self, now_s: float) -> list[SequenceProgress]:
        """Return the requests that are to end unserved."""
        return []

    def wakes_s(self) -> float:
        """Return when `reject` is due even if nothing happens; infinite if never."""
        return inf

    def check(self) -> None:
        """Assert every invariant."""


PolicyFactory = Callable[[RunningSet, RoundLimits, StepCost], Policy]


@dataclass(slots=True, frozen=True, kw_only=True)
class OptionSet:
    """The options that an engine has."""

    extensions: Callable[[StepCost, RoundLimits], tuple[Extension, ...]]
    check: RequestCheck
    """Refuses requests before they are queued."""
    policy: Callable[[], PolicyFactory]
    """Returns the policy of all schedulers of an engine, one after another."""


class Scheduler:
    """Every scheduling decision, and nothing else: no clock, no device, no event loop."""

    def __init__(
        self,
        pools: CachePools,
        limits: RoundLimits,
        stats: SchedulerStats | None = None,
        cost: StepCost | None = None,
        policy: PolicyFactory = Policy,
    ) -> None:
        """`stats` and `cost` outlive a scheduler: after a crash the next one gets the same."""
        self.pools = pools
        self.pool = pools.blocks
        self.limits = limits
        self.stats = SchedulerStats() if stats is None else stats
        self.running_set = RunningSet(pools, self.stats)
        self.cost = StepCost() if cost is None else cost
        self.policy = policy(self.running_set, limits, self.cost)
        self._rounds: dict[int, tuple[Round, list[Sequence]]] = {}  # in flight, by pipeline slot
        self.report = NO_STEP  # of the latest committed step
        self._continuous = False  # whether there was work ever since a round was in flight
        self._committed_s = 0.0  # when the latest round was

    @property
    def load(self) -> SchedulerLoad:
        return SchedulerLoad(
            running=len(self.running_set.running),
            waiting=len(self.running_set.waiting),
            blocks_total=self.pool.capacity,
            blocks_used=self.pool.used,
            blocks_cached=self.pool.cached,
            round_tokens=self.policy.tokens_max,
        )

    @property
    def idle(self) -> bool:
        return not (self.running_set.waiting or self.running_set.running)

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence."""
        sequence.queue_key = self.policy.key(sequence)
        self.running_set.submit(sequence)

    def cancel(self, request_id: str, choice: int | None = None) -> None:
        """Forget a request, or one choice of it; a row in flight is released with its verdict."""
        for sequence in [*self.running_set.waiting, *self.running_set.running.values()]:
            request = sequence.request
            if request.request_id == request_id and choice in (None, request.choice):
                sequence.cancelled = True
                if not (sequence.in_flight or sequence.ended):
                    self.running_set.end(sequence)

    def reject(self, now_s: float) -> list[SequenceProgress]:
        """End what is not to be served any more, and return why; a row in flight is dropped."""
        rejections = self.policy.reject(now_s)
        for rejection in rejections:
            self.cancel(rejection.sequence.request.request_id)
        return rejections

    def plan(self, now_s: float = 0.0) -> Round | None:
        """Return the next round, or None if every pipeline slot is busy or nothing can run; `now_s`
        is of the clock that sequences arrived by."""
        # The whole policy: a round has a budget of tokens. Texts that decode come first, with a
        # token each and, as drafts, an even share of what prompts leave of it, which is an eighth
        # at least. Then running prompts read on, and those that wait are admitted while there are
        # rows and blocks. A row that finds no block preempts the last in order, whose text is kept
        # and read again later. With run-ahead a round is planned behind the one under way, whose
        # longest outcome has room.
        slots = range(self.limits.pipeline_depth)
        pipeline_slot = next((slot for slot in slots if slot not in self._rounds), None)
        if pipeline_slot is None:
            return None
        self.running_set.now_s = now_s
        plan = self.policy.plan(self._rounds.values())
        if plan is None:
            return None
        running = self.running_set.running.values()
        ready = [text for text in running if not text.held_back and plan.takes(text)]
        # One pending token is the last one decided; more are of a prompt, or lost by a preemption.
        decoding = [sequence for sequence in ready if sequence.pending <= 1]
        reading = [sequence for sequence in ready if sequence.pending > 1]
        # Prompts get what the others leave: a long one slows texts down, and never stops them.
        plan.begin(self.policy.tokens(decoding, reading), decoding)
        self._plan_decoding(plan)
        self.policy.read(plan, reading)
        return self._send(plan, pipeline_slot) if plan.rows else None

    def rounds_in_flight(self) -> list[Round]:
        """Return the rounds under way."""
        return [round_ for round_, _ in self._rounds.values()]

    def commit(self, verdict: Verdict, now_s: float = 0.0) -> list[SequenceProgress]:
        """Apply a verdict; returns what clients are to be told."""
        round_, members = self._rounds.pop(verdict.pipeline_slot)
        assert round_.round_id == verdict.round_id, "a verdict for another round"
        self.report = report = verdict.report
        # Between rounds without work, the time is nobody's cost.
        interval_ms = 1e3 * (now_s - self._committed_s) if round_.continuous else None
        self._committed_s = now_s
        self.policy.learn(report, interval_ms)
        self.stats.count_step(report)
        parts: dict[Sequence, list[VerifiedRow]] = {}
        verified = zip(round_.rows, verdict.decisions, verdict.drafts, strict=True)
        for sequence, row in zip(members, starmap(VerifiedRow, verified), strict=True):
            parts.setdefault(sequence, []).append(row)
        # Groups come last: what single rows give back is free before.
        groups = [(group, rows) for group, rows in parts.items() if rows[0].row.options.in_group]
        for sequence, _ in groups:
            del parts[sequence]
        begun_s, updates = now_s - 1e-3 * report.device_ms, list[SequenceProgress]()
        for sequence, rows in (*parts.items(), *groups):
            sequence.times.begin_prefill(begun_s)
            updates += self._take(sequence, rows, now_s)
        self._continuous = not self.idle
        return updates

    def check(self) -> None:
        """Assert every invariant, those of the blocks included."""
        self.running_set.check()
        self.policy.check()
        in_flight = Counter(
            s
            for _, members in self._rounds.values()
            for s in set(members)  # any order: they are counted
            if not s.ended
        )
        running = self.running_set.running.values()
        assert in_flight == Counter({s: s.in_flight for s in running if s.in_flight})

    # --- planning ---------------------------------------------------------------------------

    def _plan_decoding(self, plan: RoundPlan) -> None:
        """Give every decoding sequence its rows, with even shares of the room for drafts."""
        plan.unread = self.policy.unread(plan)
        # Room is taken whether or not a draft fills it, so prompts that wait come first: with many
        # rows, half a round kept for drafts would double the rounds that the prompts take. An
        # eighth is left, so that a few rows are drafted for even then.
        budget = max(plan.tokens_max // DRAFT_SHARE, plan.tokens_max - plan.unread)
        room = max(0, budget // max(1, plan.row_count) - 1)
        for sequence in plan.decoding:
            if plan.tokens_left < 1:
                return
            # Else an earlier row has preempted it.
            if sequence.sequence_id in self.running_set.running:
                plan.add(sequence, 1, room)

    def _send(self, plan: RoundPlan, pipeline_slot: int) -> Round:
        """Return the planned round, which is under way from now on."""
        self.stats.rounds += 1
        round_ = Round(
            round_id=self.stats.rounds,
            pipeline_slot=pipeline_slot,
            rows=tuple(plan.rows),
            copies=tuple(plan.copies),
            finished_ids=tuple(plan.finished_ids),
            moves=tuple(plan.moves),
            occupancy=self.running_set.occupancy.share(len(self.running_set.waiting)),
            report=self.report,
            continuous=self._continuous,
        )
        plan.finished_ids.clear()
        self._rounds[pipeline_slot] = round_, plan.members
        self._continuous = True
        return round_

    # --- committing -------------------------------------------------------------------------

    def _take(
        self, sequence: Sequence, rows: list[VerifiedRow], now_s: float
    ) -> tuple[SequenceProgress, ...]:
        """Have a sequence take its rows; returns what its client is told."""
        sequence.in_flight -= 1
        # It ended in the round before, behind which this one was planned.
        if sequence.ended:
            self.stats.overrun_tokens += len(rows[0].decision.tokens)
            return ()
        if sequence.cancelled:
            self.running_set.end(sequence)
            return ()
        if error := next((row.decision.error for row in rows if row.decision.error), ""):
            # Its blocks may hold what is wrong: no other request finds them. The other rows go on.
            sequence.forget()
            self.running_set.end(sequence)
            return (SequenceProgress(sequence, finish_reason="failed", error=error),)
        taken = sequence.take(rows, now_s)
        if taken.verified is not None:
            self.stats.count(taken.verified.decision, taken.verified.draft)
        for update in taken.updates:
            self.stats.generated_tokens += len(update.tokens)
        if taken.length is not None:
            self.policy.ended(sequence, taken.length)
        if taken.ends:
            self.running_set.end(sequence)
        return taken.updates
