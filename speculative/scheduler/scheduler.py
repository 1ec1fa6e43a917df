"""The scheduler: which sequences are in the next round, with how many tokens, in which blocks.

Continuous batching with chunked prefill: every round mixes verify rows and prompt chunks.

running --plan--> in flight --commit--> running --> ended
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

import msgspec

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.tables import BlockCopy
from draftwerk.slo import NOTHING_PROMISED, Promise
from draftwerk.speculative.beams.members import VerifiedRow
from draftwerk.speculative.beams.search import SEARCH_ROOM
from draftwerk.speculative.blend.blending import Blending, BlendStep
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.protocol.rounds import (
    NO_STEP,
    NOTHING_LEARNED,
    Decision,
    Draft,
    Round,
    Row,
    Verdict,
)
from draftwerk.speculative.scheduler.lengths import TextLengths
from draftwerk.speculative.scheduler.prefill_lane import PrefillLane
from draftwerk.speculative.scheduler.round_budget import RoundBudget, UnreadPrompt
from draftwerk.speculative.scheduler.running_set import ComputedCount, RunningSet
from draftwerk.speculative.scheduler.stats import SchedulerStats
from draftwerk.speculative.sequence import Sequence, SequenceProgress, origins

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
    """What a round's size must keep."""
    run_ahead: bool = False
    """Whether a round is planned while the one before it runs; then the depth is two."""


@dataclass(slots=True)
class _Plan:
    """A round in the making."""

    tokens_max: int
    tokens_left: int
    before: dict[int, Row]
    """The rows of the round under way that this one is planned behind, by sequence."""
    rows: list[Row] = field(default_factory=list[Row])
    members: list[Sequence] = field(default_factory=list[Sequence])
    copies: list[BlockCopy] = field(default_factory=list[BlockCopy])
    moves: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])


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
        self._budget = RoundBudget(limits.tokens_max, limits.promise, self.cost)
        self._rounds: dict[int, tuple[Round, list[Sequence]]] = {}  # in flight, by pipeline slot
        self.returns: Returns | None = None
        """A second tier, where there is one."""
        self.report = NO_STEP
        """Of the latest committed step."""
        self._continuous = False  # whether there was work ever since a round was in flight

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
                if not sequence.in_flight:
                    self.running_set.end(sequence)

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
        tokens_max = self._budget.tokens(now_s, sum(map(_row_count, decoding)), self._unread())
        plan = _Plan(tokens_max, tokens_max, before)
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
        self.cost.learn(report.load, report.device_ms + report.head_ms)
        self.stats.count_step(verdict.report)
        updates: list[SequenceProgress] = []
        searches: dict[Sequence, list[VerifiedRow]] = {}
        decided = zip(members, round_.rows, verdict.decisions, drafts, strict=True)
        for sequence, row, decision, draft in decided:
            if row.branch is not None:
                searches.setdefault(sequence, []).append(VerifiedRow(row, decision, draft))
                continue
            sequence.in_flight -= 1
            if sequence.ended:
                self.stats.overrun_tokens += len(decision.tokens)
            elif sequence.cancelled:
                self.running_set.end(sequence)
            elif decision.error:
                sequence.forget()
                self.running_set.end(sequence)
                updates.append(SequenceProgress(sequence, (), (), (), "error", decision.error))
            elif self._only_blends(sequence, row, decision):
                continue
            elif row.samples:
                sequence.begin_decode(now_s)
                updates.append(self._advance(sequence, decision, draft))
            else:
                sequence.computed = row.stop
                sequence.table.commit(sequence.tokens, sequence.computed)
        for sequence, parts in searches.items():
            sequence.in_flight -= 1
            sequence.begin_decode(now_s)
            updates.extend(self._advance_search(sequence, parts))
        self._continuous = not (self.idle or self.prefill.has_all)
        return updates

    def check(self) -> None:
        """Assert every invariant, those of the blocks included."""
        self.running_set.check()
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
            sequence.table.reserve(_known_max(sequence, row))
            for round_, members in self._rounds.values()
            for sequence, row in zip(members, round_.rows, strict=True)
            if sequence.continues and _goes_on(sequence)
        )

    def _unread(self) -> list[UnreadPrompt]:
        """Return the prompts that are read or wait to be, in the order of reading."""
        if not self.limits.promise.ttft:
            return []
        running = self.running_set.running.values()
        reading = [s for s in running if s.unread > 1 and not s.apart]
        ordered = chain(sorted(reading, key=lambda one: one.rank), self._entering())
        return [UnreadPrompt(one.arrived_s, one.unread) for one in ordered if not one.generated]

    def _plan_decoding(self, plan: _Plan, ready: list[Sequence]) -> None:
        """Give every decoding sequence its row, then share what is left among their drafts."""
        rows = sum(map(_row_count, ready))
        room = self._draft_room(plan, rows)
        for sequence in ready:
            if plan.tokens_left < 1:
                return
            if sequence.sequence_id not in self.running_set.running:
                continue  # an earlier row has preempted it
            if sequence.search is not None:
                self._add_search(plan, sequence, self._draft_room(plan, rows, SEARCH_ROOM))
            else:
                free = self._free_slots(plan, sequence, rows)
                draft_max = min(room, sequence.draft_room(), plan.tokens_left - 1, free)
                self._add_row(plan, sequence, 1, draft_max)

    def _draft_room(self, plan: _Plan, row_count: int, factor: int = 1) -> int:
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

    def _wanted(self, plan: _Plan) -> int:
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

    def _free_slots(self, plan: _Plan, sequence: Sequence, row_count: int) -> int:
        """Return how many drafts may be written behind a decoding row without cramping others.

        They may fill the row's last block, and all rows together half of the blocks that are free:
        near the pool's limit drafts grow shorter, before any sequence has to wait.
        """
        size = self.pool.block_size
        known = _known_max(sequence, plan.before.get(sequence.sequence_id))
        held = max(self.pool.blocks_for(known), len(sequence.table.blocks))
        return held * size - known + self.pool.available // (2 * row_count) * size

    def _plan_prompts(self, plan: _Plan, ready: Iterable[Sequence]) -> None:
        """Read prompts in the order of rank, and let waiting sequences enter in their turn."""
        waiting, running = self.running_set.waiting, self.running_set.running
        reading = deque(sorted(ready, key=lambda sequence: sequence.rank))
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
                    self._begin(plan, sequence)
            elif reading:
                sequence = reading.popleft()
                is_running = sequence.sequence_id in running  # or an earlier row has preempted it
                if is_running and self.prefill.leaves(sequence, inline_left):
                    inline_left -= sequence.pending
                    self._add_chunk(plan, sequence)
            else:
                break
        self.running_set.put_back(blocked)

    def _is_fetched(self, sequence: Sequence) -> bool:
        """Return whether blocks that a preempted sequence has lost are on their way."""
        if self.returns is None or not sequence.tally.preemptions:
            return False
        return self.returns.fetches(sequence)

    def _begin(self, plan: _Plan, sequence: Sequence) -> None:
        """Add the first row of a sequence, which has all of its known tokens' blocks."""
        if sequence.unread:
            self._add_chunk(plan, sequence)
        else:
            self._add_search(plan, sequence, 0)

    def _add_chunk(self, plan: _Plan, sequence: Sequence) -> None:
        """Add as much of a prompt as the round still has room for."""
        blending, count = sequence.blending, min(sequence.unread, plan.tokens_left)
        if blending is not None and blending.covers(sequence.planned):
            self._add_blended(plan, sequence, blending)
            return
        if blending is not None and sequence.planned < blending.start:
            count = min(count, blending.start - sequence.planned)
        self._add_row(plan, sequence, count, 0)

    def _add_blended(self, plan: _Plan, sequence: Sequence, blending: Blending) -> None:
        """Add the next row of a prompt whose segments are reused."""
        end = sequence.planned + sequence.unread
        step = blending.step(sequence.tokens, sequence.planned, end, plan.tokens_left)
        if step is None:
            need = self.pool.blocks_for(blending.missing())
            if not self.running_set.free(sequence, need):
                return
            step = blending.step(sequence.tokens, sequence.planned, end, plan.tokens_left)
        if step is not None:
            self._add_row(plan, sequence, step.cost, 0, step)

    def _add_row(
        self,
        plan: _Plan,
        sequence: Sequence,
        count: int,
        draft_max: int,
        step: BlendStep | None = None,
    ) -> None:
        """Add a row of `count` known tokens if blocks can be had, with as many drafts as fit.

        Of a row that continues another, the token is known by the time that it is computed.
        """
        start, stop = sequence.planned, sequence.planned + count
        if step is not None:
            start, stop = step.start, step.stop
        continues = sequence.continues
        end = _known_max(sequence, plan.before[sequence.sequence_id]) if continues else stop
        if not self.running_set.make_room(sequence, end, draft_max):
            return
        copies = sequence.table.own(start)
        if copies is None:
            self.running_set.preempt(sequence)
            return
        samples = stop >= len(sequence.tokens)
        fits = min(draft_max, sequence.table.slots - end) if samples else 0
        sent_count = sequence.sent_count
        row = Row(
            sequence_id=sequence.sequence_id,
            start=start,
            stop=stop,
            samples=samples,
            draft_max=fits,
            blocks=tuple(sequence.table.blocks[: self.pool.blocks_for(end + fits)]),
            new_token_ids=tuple(sequence.tokens[sent_count:]) if sent_count else (),
            new_sequence=None if sent_count else sequence.new_sequence(),
            tokens_left=sequence.tokens_max - sequence.generated,
            feedback=sequence.feedback,
            continues=continues,
            blend=None if step is None else step.row,
        )
        sequence.sent_count = len(sequence.tokens)
        if row.blend is None or not row.blend.probes:  # a probe computes nothing that lasts
            sequence.planned = min(stop, len(sequence.tokens))
        sequence.feedback = NOTHING_LEARNED
        sequence.in_flight += 1
        plan.copies.extend(copies)
        plan.rows.append(row)
        plan.members.append(sequence)
        plan.tokens_left -= count + fits

    def _add_search(self, plan: _Plan, sequence: Sequence, draft_max: int) -> None:
        """Add the rows of all members of a beam search, or none."""
        search = sequence.search
        assert search is not None
        group = search.plan(
            sequence,
            self.pool,
            draft_max,
            plan.tokens_left,
            lambda need: self.running_set.free(sequence, need),
        )
        if group is None:
            return
        sequence.in_flight += 1
        self.running_set.mark_finished(search.take_finished_ids())
        plan.copies.extend(group.copies)
        plan.moves.extend(group.moves)
        plan.rows.extend(group.rows)
        plan.members.extend(sequence for _ in group.rows)
        plan.tokens_left -= sum(row.stop - row.start + row.draft_max for row in group.rows)

    # --- committing --------------------------------------------------------------------------

    def _only_blends(self, sequence: Sequence, row: Row, decision: Decision) -> bool:
        """Take in what a row did for a blend; returns whether that was all."""
        if row.blend is None:
            return False
        blending = sequence.blending
        assert blending is not None
        blending.commit(sequence.tokens, row.blend, row.stop, decision.deviations)
        sequence.tally.recomputed += len(row.blend.places)
        return row.blend.probes

    def _advance(self, sequence: Sequence, decision: Decision, draft: Draft) -> SequenceProgress:
        """Append what the target decided; the last token's KV is computed in the next round."""
        assert decision.tokens, "a row was left out whose text goes on"
        self.stats.count(decision, draft)
        sequence.tally.count(decision, draft)
        stop = len(sequence.tokens)
        kept, finish_reason = sequence.extend(decision.tokens)
        self.stats.generated_tokens += kept
        sequence.feedback = decision.feedback
        sequence.computed = min(stop + len(decision.path), len(sequence.tokens))
        sequence.table.commit(sequence.tokens, sequence.computed)
        if sequence.in_flight:  # a row that continues this one: the device knows the new tokens
            sequence.planned = sequence.sent_count = len(sequence.tokens)
        else:
            sequence.planned = sequence.computed
        if finish_reason:
            self.running_set.end(sequence)
            if self.running_set.lengths is not None:
                self.running_set.lengths.learn(sequence.generated)
        return SequenceProgress(
            sequence,
            decision.tokens[:kept],
            origins(decision, draft)[:kept],
            decision.logprobs[:kept],
            finish_reason,
        )

    def _advance_search(self, root: Sequence, parts: list[VerifiedRow]) -> list[SequenceProgress]:
        """Apply the rows of a beam search; returns its progress."""
        assert root.search is not None
        error = next((part.decision.error for part in parts if part.decision.error), "")
        if root.cancelled or error:
            self.running_set.end(root)
            return [] if root.cancelled else [SequenceProgress(root, (), (), (), "error", error)]
        outcome = root.search.commit(root, parts)
        if outcome is None:
            return []
        self.stats.count(outcome.decision, outcome.draft)
        root.tally.count(outcome.decision, outcome.draft)
        updates = root.search.new_progress(root)
        self.stats.generated_tokens += sum(len(progress.tokens) for progress in updates)
        if root.search.beams.done:
            self.running_set.end(root)
        return updates


def _goes_on(sequence: Sequence) -> bool:
    """Return whether a sequence in flight has another row, whatever the round under way decides.

    What a blended prompt's next row is depends on the deviations that come with the verdict.
    """
    if sequence.cancelled or sequence.ended or sequence.blends:
        return False
    return not sequence.continues or sequence.tokens_max - sequence.generated > 1


def _known_max(sequence: Sequence, before: Row | None) -> int:
    """Return how many tokens are known at most when a row of it begins behind another one."""
    known = len(sequence.tokens)
    return known + 1 + before.draft_max if before is not None and sequence.continues else known


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
