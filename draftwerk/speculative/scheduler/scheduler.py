"""The scheduler: which sequences are in the next round, with how many tokens, in which blocks.

Continuous batching with chunked prefill: every round mixes verify rows and prompt chunks.

running --plan--> in flight --commit--> running --> ended
"""

from collections import Counter, deque
from collections.abc import Iterable
from heapq import merge
from itertools import chain
from math import inf
from typing import Protocol

import msgspec

from draftwerk.cache.blocks import BlockPool
from draftwerk.speculative.beams.search import SEARCH_ROOM
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.protocol.rounds import (
    NO_STEP,
    Draft,
    Round,
    Row,
    StepReport,
    Verdict,
)
from draftwerk.speculative.scheduler.lengths import TextLengths
from draftwerk.speculative.scheduler.prefill_lane import PrefillLane
from draftwerk.speculative.scheduler.promises import decoding_rows, unread_prompts
from draftwerk.speculative.scheduler.round_budget import RoundBudget
from draftwerk.speculative.scheduler.round_commit import RoundCommit
from draftwerk.speculative.scheduler.round_plan import RoundPlan
from draftwerk.speculative.scheduler.round_times import RoundTimes
from draftwerk.speculative.scheduler.running_set import ComputedCount, RunningSet, rank_of
from draftwerk.speculative.scheduler.stats import SchedulerStats
from draftwerk.speculative.scheduler.turning_away import LastWord, TurningAway
from draftwerk.speculative.sequence import Sequence, SequenceProgress
from draftwerk.speculative.slo import NOTHING_PROMISED, Promise, SloPolicy

READ_MAX = 64
"""Prompt tokens in a round that another is planned behind: beside a longer one the device's wait is
nothing, and who comes while it runs shall not wait for two."""
DRAFT_SHARE = 8
"""Of a round, one part in so many is for drafts even while prompts wait."""


class RoundLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a round may hold."""

    pipeline_depth: int = 1
    """Rounds under way at once."""
    rows_max: int = 64
    """Sequences running at once."""
    tokens_max: int = 256
    """Tokens computed in a round, drafts included."""
    draft_max: int = 7
    """Drafted tokens in a row."""
    inline_max: int = 32
    """Prompt tokens that a round takes along while prompts are computed apart: what is left of one
    after a prefix hit is often less, and not worth a hand-over."""
    promise: Promise = NOTHING_PROMISED
    """To every request that has no promise of its own."""
    slo_policy: SloPolicy = "last"
    """What becomes of a request that cannot be kept its promise."""
    run_ahead: bool = False
    """Whether a round is planned while the one before it runs; then the depth is two."""


class Returns(Protocol):
    """Brings back blocks of preempted sequences."""

    def fetches(self, sequence: Sequence, /) -> bool:
        """Return whether the sequence is to wait, because blocks of it are on their way."""
        ...


class Scheduler:
    """Every scheduling decision, and nothing else: no clock, no device, no event loop."""

    def __init__(
        self,
        pool: BlockPool,
        limits: RoundLimits,
        stats: SchedulerStats | None = None,
        cost: StepCost | None = None,
        lengths: TextLengths | None = None,
    ) -> None:
        """`stats`, `cost` and `lengths` are of all schedulers, where there are several in turn.

        Without `lengths` sequences enter by what is known of them alone.
        """
        self.pool = pool
        self.limits = limits
        self.stats = SchedulerStats() if stats is None else stats
        self.running_set = RunningSet(pool, self.stats, lengths)
        self.prefill = PrefillLane(self.running_set, limits.tokens_max, limits.inline_max)
        self.cost = StepCost() if cost is None else cost
        self.round_times = RoundTimes()
        self._budget = RoundBudget(limits.tokens_max, self.cost, self.round_times)
        self._turning_away = TurningAway(
            self.running_set, self._budget, limits.slo_policy, limits.rows_max
        )
        self._commit = RoundCommit(self.running_set, self.stats)
        self._rounds: dict[int, tuple[Round, list[Sequence]]] = {}  # in flight, by pipeline slot
        self.returns: Returns | None = None
        """A second tier, where there is one."""
        self.report = NO_STEP
        """Of the latest committed step."""
        self._continuous = False  # whether there was work ever since a round was in flight
        self._committed_s = 0.0  # when the latest round was

    @property
    def waiting(self) -> int:
        return len(self.running_set.waiting)

    @property
    def running(self) -> int:
        return len(self.running_set.running)

    @property
    def idle(self) -> bool:
        return not (self.running_set.waiting or self.running_set.running)

    @property
    def runs_ahead(self) -> bool:
        """Whether a round is planned behind the one that is computed."""
        return len(self._rounds) > 1

    def submit(self, sequence: Sequence) -> None:
        """Queue a sequence: by its priority, then by its age."""
        self.running_set.submit(sequence)

    def cancel(self, request_id: str, choice: int | None = None) -> None:
        """Forget a request, or one choice of it; a row in flight is released with its verdict."""
        for sequence in [*self.running_set.waiting, *self.running_set.running.values()]:
            if sequence.request_id == request_id and choice in (None, sequence.choice):
                sequence.cancelled = True
                if not (sequence.in_flight or sequence.ended):
                    self.running_set.end(sequence)

    def turn_away(self, now_s: float) -> list[LastWord]:
        """End what is not to be served any more, and return why; a row in flight is dropped."""
        words = self._turning_away.words(now_s, len(self.prefill.up))
        for word in words:
            self.cancel(word.sequence.request_id)
        return words

    def expires_s(self) -> float:
        """Return when `turn_away` is due though nothing else happens; infinite if never."""
        return self._turning_away.expires_s()

    def plan(self, now_s: float = 0.0) -> Round | None:
        """Return the next round, or None if every pipeline slot is busy or nothing can run.

        `now_s` is of the clock that sequences arrived by; what was promised is counted from there.
        """
        pipeline_slot = next(
            (n for n in range(self.limits.pipeline_depth) if n not in self._rounds), None
        )
        if pipeline_slot is None:
            return None
        self.running_set.now_s = now_s
        before: dict[int, Row] = {}
        if self.limits.run_ahead and self._rounds:
            if not self._may_run_ahead():
                return None
            before = {row.sequence_id: row for one, _ in self._rounds.values() for row in one.rows}
        else:
            self.running_set.make_way(self.limits.rows_max)
        running = [s for s in self.running_set.running.values() if not s.apart]
        ready = [s for s in running if not s.in_flight or (before and _goes_on(s))]
        decoding = [s for s in ready if s.pending <= 1]
        rows = decoding_rows(decoding, now_s)
        prompts = unread_prompts(self._reading()) if rows.tpot_s < inf else []
        tokens_max = self._budget.tokens(now_s, rows, prompts)
        plan = RoundPlan(self.running_set, tokens_max, before)
        self._plan_decoding(plan, decoding)
        self._plan_prompts(plan, [s for s in ready if s.pending > 1])
        if not plan.rows:
            return None
        self.stats.rounds += 1
        round_ = Round(
            round_id=self.stats.rounds,
            pipeline_slot=pipeline_slot,
            rows=tuple(plan.rows),
            copies=tuple(plan.copies),
            finished_ids=self.running_set.take_finished_ids(),
            moves=tuple(plan.moves),
            occupancy=self.running_set.occupancy(),
            report=self.report,
            continuous=self._continuous,
        )
        self._rounds[pipeline_slot] = round_, plan.members
        self._continuous = True
        return round_

    def plan_apart(self) -> Round | None:
        """Return the next chunks for a process that computes prompts alone, or None."""
        return self.prefill.plan(self._blocks_of_rounds)

    def blocks_in_flight(self) -> set[int]:
        """Return every block that a round under way may write to."""
        return self._blocks_of_rounds() | self.prefill.blocks_in_flight()

    def _blocks_of_rounds(self) -> set[int]:
        found: set[int] = set()
        for round_, _ in self._rounds.values():
            found.update(block for row in round_.rows for block in row.blocks)
            blends = (row.blend for row in round_.rows if row.blend is not None)
            reads = (read for blend in blends for read in blend.reads)
            found.update(block for read in reads for block in read.blocks)
            found.update(target for _, target in round_.copies)
        return found

    def computed_counts(self) -> dict[str, ComputedCount]:
        """Return how much was computed of each request that runs."""
        return self.running_set.computed_counts()

    def commit(
        self, verdict: Verdict, drafts: tuple[Draft, ...], now_s: float = 0.0
    ) -> list[SequenceProgress]:
        """Apply a verdict; returns the progress of every sequence that was not cancelled."""
        round_, members = self._rounds.pop(verdict.pipeline_slot)
        assert round_.round_id == verdict.round_id, "a verdict for another round"
        self.report = report = verdict.report
        self._learn_time(round_, report, now_s)
        self.stats.count_step(verdict.report)
        updates = self._commit.apply(round_, members, verdict, drafts, now_s)
        self._continuous = not (self.idle or self.prefill.has_all)
        return updates

    def _learn_time(self, round_: Round, report: StepReport, now_s: float) -> None:
        device_ms = report.device_ms + report.head_ms
        if round_.continuous:
            interval_ms = 1e3 * (now_s - self._committed_s)
            self.round_times.learn(interval_ms, device_ms, self.cost.ms(report.load))
        self._committed_s = now_s
        self.cost.learn(report.load, device_ms)

    def check(self) -> None:
        """Assert every invariant, those of the blocks included."""
        self.running_set.check()
        self.round_times.check()
        self.prefill.check()
        in_flight = Counter(
            s for _, members in self._rounds.values() for s in set(members) if not s.ended
        )
        in_flight.update(self.prefill.in_flight())
        running = self.running_set.running.values()
        assert in_flight == Counter({s: s.in_flight for s in running if s.in_flight})

    # --- planning ---------------------------------------------------------------------------

    def _may_run_ahead(self) -> bool:
        """Return whether every row of the round under way can be continued before it is answered.

        Their longest outcome must fit into the pool at nobody's cost, and no search, no more urgent
        sequence and no newcomer may have to wait long for it: else the next round is planned behind
        the verdict.
        """
        running = self.running_set.running.values()
        if self.running_set.makes_way or any(s.search is not None for s in running):
            return False
        under_way = [row for round_, _ in self._rounds.values() for row in round_.rows]
        if sum(_read_count(row) for row in under_way) > READ_MAX:
            return False
        return all(
            sequence.table.reserve(sequence.known_max(row))
            for round_, members in self._rounds.values()
            for sequence, row in zip(members, round_.rows, strict=True)
            if sequence.continues and _goes_on(sequence)
        )

    def _reading(self) -> Iterable[Sequence]:
        """Return those whose prompts are read or wait to be, in the order of reading."""
        running = self.running_set.running.values()
        reading = [s for s in running if s.unread > 1 and not s.apart]
        return merge(sorted(reading, key=rank_of), self._entering(), key=rank_of)

    def _plan_decoding(self, plan: RoundPlan, ready: list[Sequence]) -> None:
        """Give every decoding sequence its row, then share what is left among their drafts."""
        rows = sum(map(_row_count, ready))
        room = self._draft_room(plan, rows)
        for sequence in ready:
            if plan.tokens_left < 1:
                return
            if sequence.sequence_id not in self.running_set.running:
                continue  # an earlier row has preempted it
            if sequence.search is not None:
                plan.add_search(sequence, self._draft_room(plan, rows, SEARCH_ROOM))
            else:
                free = plan.free_slots(sequence, rows)
                draft_max = min(room, sequence.draft_room(), plan.tokens_left - 1, free)
                plan.add_row(sequence, 1, draft_max)

    def _draft_room(self, plan: RoundPlan, row_count: int, factor: int = 1) -> int:
        """Return how many drafts each row may carry: the budget is shared evenly.

        Room is taken whether or not a draft fills it, so prompts that wait come first: with many
        rows, half a round kept for drafts would double the rounds that the prompts take. An eighth
        is left, so that drafts do not starve either.
        """
        most = plan.tokens_max
        budget = max(most // DRAFT_SHARE, most - self._wanted(plan))
        share = max(0, budget // max(1, row_count) - 1)
        return min(factor * self.limits.draft_max, share)

    def _entering(self) -> Iterable[Sequence]:
        """Return those that wait for rounds that decode: none while prompts are computed apart."""
        return () if self.prefill.up else self.running_set.waiting

    def _wanted(self, plan: RoundPlan) -> int:
        """Return how many tokens prompts could have read in this round, up to all of it."""
        running, wanted, most = self.running_set.running, 0, plan.tokens_max
        enters = self._entering() if len(running) < self.limits.rows_max else ()
        for sequence in chain(running.values(), enters):
            if sequence.apart:
                continue
            if sequence.pending > 1 and (plan.before or not sequence.in_flight):
                wanted += sequence.unread
                if wanted >= most:
                    return most
        return wanted

    def _plan_prompts(self, plan: RoundPlan, ready: Iterable[Sequence]) -> None:
        """Read prompts in the order of rank, and let waiting sequences enter in their turn."""
        waiting, running = self.running_set.waiting, self.running_set.running
        reading = deque(sorted(ready, key=rank_of))
        blocked: list[Sequence] = []
        may_enter, inline_left = True, self.limits.inline_max
        while plan.tokens_left > 0:
            may_enter = may_enter and len(running) < self.limits.rows_max
            if waiting and may_enter and not (reading and reading[0].rank <= waiting[0].rank):
                sequence = waiting.popleft()
                if sequence.leader is not None and not sequence.leader.prefilled:
                    blocked.append(sequence)
                elif self.prefill.waits(sequence) or self._is_fetched(sequence):
                    blocked.append(sequence)  # one that need not wait for that may overtake it
                elif not self.running_set.enter(sequence):
                    blocked.append(sequence)
                    may_enter = False  # nobody overtakes a sequence that finds no room
                elif self.prefill.leaves(sequence, inline_left):
                    inline_left -= sequence.pending
                    plan.begin(sequence)
            elif reading:
                sequence = reading.popleft()
                if sequence.sequence_id not in running:
                    continue  # an earlier row has preempted it
                if self.prefill.leaves(sequence, inline_left):
                    inline_left -= sequence.pending
                    plan.add_chunk(sequence)
            else:
                break
        self.running_set.put_back(blocked)

    def _is_fetched(self, sequence: Sequence) -> bool:
        """Return whether blocks that a preempted sequence has lost are on their way."""
        if self.returns is None or not sequence.tally.preemptions:
            return False
        return self.returns.fetches(sequence)


def _goes_on(sequence: Sequence) -> bool:
    """Return whether a sequence in flight has another row, whatever the round under way decides.

    What a blended prompt's next row is depends on the deviations that come with the verdict.
    """
    if sequence.cancelled or sequence.ended or sequence.blends:
        return False
    return not sequence.continues or sequence.tokens_max - sequence.generated > 1


def _read_count(row: Row) -> int:
    """Return how many tokens of a prompt a row reads; copies and probes take time as well."""
    return max(row.token_count, row.stop - row.start) - row.samples


def _row_count(sequence: Sequence) -> int:
    return 1 if sequence.search is None else sequence.search.row_count


def expand(sequences: Iterable[Sequence]) -> list[Sequence]:
    """Make the first of a request's choices the leader of the others."""
    leader, *others = sequences
    for other in others:
        other.leader = leader
    return [leader, *others]
