"""The policy of a server: what requests were promised, and what they will probably need.

promises, rejections    who is due when, who comes last, and who is refused
urgency                 who gives way to the first that waits
lengths, overtaking     who enters, so that all that run fit to their ends
budget, prompt rows     how much a round reads, so that no text waits for long
run ahead               whether a round is planned behind another under way
"""

from collections.abc import Collection
from collections.abc import Sequence as Ordered
from math import inf

from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.load.size_limits import RoundLimits
from draftwerk.speculative.options.service.lengths import TextLengths, kind_of, overflows
from draftwerk.speculative.options.service.overtaking import Overtaking
from draftwerk.speculative.options.service.prompt_rows import PromptRows
from draftwerk.speculative.options.service.prompt_shares import PromptQueue
from draftwerk.speculative.options.service.rejections import Rejections
from draftwerk.speculative.options.service.round_budget import RoundBudget
from draftwerk.speculative.options.service.round_sizes import is_revised, revised_tokens
from draftwerk.speculative.options.service.round_times import RoundTimes
from draftwerk.speculative.options.service.run_ahead import PlanBehind, may_run_ahead
from draftwerk.speculative.options.service.slo_times import decoding_rows, slack_rounds
from draftwerk.speculative.options.service.urgency import preempt_for_first
from draftwerk.speculative.rounds import Round
from draftwerk.speculative.row_parts.step_report import StepReport
from draftwerk.speculative.running_set import RunningSet
from draftwerk.speculative.scheduler import Policy
from draftwerk.speculative.sequence import RoundPlan, Sequence, SequenceProgress


class ServicePolicy(Policy):
    """Deadlines, lengths and budgets."""

    def __init__(
        self,
        running_set: RunningSet,
        limits: RoundLimits,
        cost: StepCost,
        lengths: TextLengths | None = None,
    ) -> None:
        """Without `lengths` sequences enter by what is known of them alone."""
        super().__init__(running_set, limits, cost)
        self.lengths = lengths
        self.round_times = RoundTimes()
        self._budget = RoundBudget(limits.tokens_max, cost, self.round_times, limits.pause_s)
        self._overtaking = Overtaking(running_set, limits.tokens_max, lambda: self.lengths)
        self._rejections = Rejections(
            running_set, self._budget, limits.slo_policy, limits.rows_max, lambda: self.lengths
        )
        self.prompts = PromptRows(
            running_set,
            limits.rows_max,
            self._budget.token_weight,
            limits.in_order,
            self._overtaking,
        )
        self._committed_count = 0
        running_set.admits = self._admits

    def key(self, sequence: Sequence) -> int:
        return super().key(sequence) + slack_rounds(sequence, self.running_set.now_s)

    def plan(self, rounds: Collection[tuple[Round, Ordered[Sequence]]]) -> RoundPlan | None:
        if not (self.limits.run_ahead and rounds):
            preempt_for_first(self.running_set, self.limits.rows_max)
            self._overtaking.give_way()
            return super().plan(rounds)
        if not may_run_ahead(self.running_set, rounds) or self._overtaking.is_due():
            return None
        return PlanBehind(self.running_set, rounds)

    def tokens(self, decoding: list[Sequence], reading: list[Sequence]) -> int:
        """Return how many tokens the round may hold, by what its readers were promised."""
        now_s, bounded = self.running_set.now_s, self.limits.pause_s < inf
        rows = decoding_rows(decoding, now_s, bounded)
        weighed = bounded or rows.tpot_s < inf
        line = self.prompts.line(reading) if weighed else PromptQueue([])
        return self._budget.tokens(now_s, rows, line)

    def unread(self, plan: RoundPlan) -> int:
        return self.prompts.wanted(plan)

    def read(self, plan: RoundPlan, reading: list[Sequence]) -> None:
        if reading or self.running_set.waiting:
            self.prompts.plan(plan, reading)

    def learn(self, report: StepReport, interval_ms: float | None) -> None:
        """Follow what steps cost in service, and what lies between them."""
        if interval_ms is not None:
            expected_ms = self.cost.ms(report.load)
            self.round_times.learn(interval_ms, report.device_ms, expected_ms, report.head_ms)
        super().learn(report, interval_ms)
        self._committed_count += 1
        if self.limits.tokens_revised and is_revised(self._committed_count):
            self.tokens_max = self._budget.tokens_max = revised_tokens(
                self.cost, self.limits.rows_max, self.tokens_max, self.round_times.gap_ms
            )

    def ended(self, sequence: Sequence, length: int) -> None:
        if self.lengths is not None:
            self.lengths.learn(length, kind_of(sequence))

    def reject(self, now_s: float) -> list[SequenceProgress]:
        return self._rejections.chosen(now_s)

    def wakes_s(self) -> float:
        return self._rejections.expires_s()

    def check(self) -> None:
        self.round_times.check()
        if self.lengths is not None:
            self.lengths.check()

    def _admits(self, entering: Sequence) -> bool:
        """Return whether the pool will probably hold what runs and one more.

        Before its blocks are reserved this asks for too little: its prefix may be cached.
        """
        running = self.running_set.running
        if self.lengths is None or not running:
            return True
        return not overflows(self.running_set.pool, self.lengths, running.values(), entering)
