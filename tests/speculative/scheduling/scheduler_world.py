"""A scheduler, a toy target in real pages, and clients: all that a scheduler may meet, in any
order.

Rounds reach the target in the order of their planning; verdicts come back in that order, later.
After every step the invariants hold, and each text is the plain model's.
"""

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from math import inf
from random import Random

from msgspec.structs import replace

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.kinds.recurrent_states import StateRules
from draftwerk.cache.memory import CachePools
from draftwerk.cache.tables import BlockNamer
from draftwerk.speculative.options.service.lengths import TextLengths
from draftwerk.speculative.options.service.service_policy import ServicePolicy
from draftwerk.speculative.options.service.slo_times import has_begun
from draftwerk.speculative.request import SequenceRequest
from draftwerk.speculative.requests.slo import NO_SLO, Deadlines, Slo, SloPolicy
from draftwerk.speculative.rounds import Decision, Draft, Proposal, Round, Row, Verdict
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import PolicyFactory, RoundLimits, Scheduler
from draftwerk.speculative.sequence import Sequence, SequenceProgress
from tests.support.simulation import Guesser
from tests.support.toy import POISON, STOP, VOCAB, ToyTarget, plain_text

POLICIES: tuple[SloPolicy, ...] = ("serve", "last", "refuse")
CONTEXT = 28
"""Tokens of a sequence at most, as long as the pool can hold one of them."""


@dataclass(eq=False)
class WantedText:
    """One sequence as its client sees it."""

    sequence: Sequence
    prompt: tuple[int, ...]
    want: list[int]
    reason: str
    got: list[int] = field(default_factory=list)
    ending: str = ""
    """A finish reason, "failed", "cancelled", "expired" or "unmet"."""


@dataclass
class Reader:
    """Builds sequences from rounds alone, as a device or a draft source does."""

    histories: dict[int, list[int]] = field(default_factory=dict)

    def read(self, round_: Round) -> None:
        for sequence_id in round_.finished_ids:
            del self.histories[sequence_id]
        for row in round_.rows:
            if row.new_sequence is not None:
                assert row.sequence_id not in self.histories, "opened twice"
                assert not row.new_token_ids, "an opening says it all"
                self.histories[row.sequence_id] = list(row.new_sequence.tokens)
            self.histories[row.sequence_id] += row.new_token_ids


def led(sequences: Iterable[Sequence]) -> list[Sequence]:
    """Make the first of a request's choices the leader of the others."""
    leader, *others = sequences
    for other in others:
        other.leader = leader
    return [leader, *others]


class RoundWorld:
    """A scheduler over pools and a toy target; random choices come from `rng` alone."""

    def __init__(
        self,
        rng: Random,
        block_count: int,
        block_size: int,
        limits: RoundLimits,
        state_slots: int,
        policy: PolicyFactory,
    ) -> None:
        self.rng, self.limits = rng, limits
        self.states: StateRules | None = None
        if state_slots:
            own = 2 + limits.run_ahead
            self.states = StateRules(BlockPool(state_slots, 1), own, block_size, 2 * block_size)
        kinds = () if self.states is None else (self.states,)
        pools = CachePools(BlockPool(block_count, block_size), kinds)
        self.scheduler = Scheduler(pools, limits, policy=policy)
        self.namer = BlockNamer(b"")
        self.target = ToyTarget(block_count, block_size, states=[(-1, 0)] * state_slots)
        self.guesser = Guesser(rng)
        self.verdicts: deque[tuple[Round, tuple[Draft, ...], Verdict]] = deque()
        self.counters: Counter[str] = Counter()


class World(RoundWorld):
    """Clients of all kinds, and a reader beside the target."""

    def __init__(
        self,
        rng: Random,
        *,
        block_count: int = 10,
        block_size: int = 3,
        limits: RoundLimits | None = None,
        lengths: TextLengths | None = None,
        hurry: Random | None = None,
        state_slots: int = 0,
        policy: PolicyFactory | None = None,
    ) -> None:
        """With `hurry`, requests are promised something and have deadlines, as it draws them."""
        limits = limits or RoundLimits(pipeline_depth=2, rows_max=4, tokens_max=12, draft_max=4)
        policy = policy or partial(ServicePolicy, lengths=lengths)
        super().__init__(rng, block_count, block_size, limits, state_slots, policy)
        self.hurry = hurry
        self.context_max = min(CONTEXT, block_count * block_size)
        self.reader = Reader()
        self.wanteds: dict[int, WantedText] = {}
        self.now_s = 0.0

    @property
    def service(self) -> ServicePolicy:
        assert isinstance(self.scheduler.policy, ServicePolicy)
        return self.scheduler.policy

    # --- what may happen ------------------------------------------------------------------------

    def submit(self) -> None:
        """Submit a request of one or more choices."""
        rng = self.rng
        shared = [1 + n % 3 for n in range(rng.choice([0, 6, 9]))]
        prompt = [*shared, *(rng.randrange(1, VOCAB) for _ in range(rng.randint(1, 4)))]
        prompt = prompt[: self.context_max - 1]
        if tuple(prompt[: len(POISON)]) == POISON:
            prompt[0] = 1
        sampling = random_sampling(rng)
        choices = rng.choice([1, 1, 1, 2, 3])
        room = self.context_max - len(prompt)
        tokens_max = min(room, rng.choice([1, 2, 7, room]))
        most = self.limits.draft_max
        draft_max = min(most, rng.choice([0, 2, most]))
        priority = rng.choice([0, 0, -1, 1])
        space = rng.choice(["", "", "a"])
        slo, expires_s = self.limits.slo, inf
        if self.hurry is not None:
            own = [slo, slo, Slo(ttft=0.01), Slo(ttft=0.2, tpot=0.002)]
            slo = self.hurry.choice(own)
            expires_s = self.now_s + self.hurry.choice([inf, inf, 0.0, 0.05, 0.5])
        request_id = f"r{len(self.wanteds)}"
        for sequence in led(
            self.sequence(
                request_id, choice, prompt, sampling, tokens_max, draft_max, priority, space
            )
            for choice in range(choices)
        ):
            sequence.times.slo = slo
            sequence.times.expires_s = expires_s
            self.scheduler.submit(sequence)
        self.check()

    def sequence(
        self,
        request_id: str,
        choice: int,
        prompt: list[int],
        sampling: Sampling,
        tokens_max: int,
        draft_max: int | None = None,
        priority: int = 0,
        space: str = "",
    ) -> Sequence:
        """Return a new sequence, and keep its expected outcome."""
        if draft_max is None:
            draft_max = min(4, self.limits.draft_max)
        sampling = replace(sampling, branch=choice)
        sequence = Sequence(
            sequence_id=len(self.wanteds) + 1,
            request=SequenceRequest(
                request_id=request_id,
                choice=choice,
                prompt_count=len(prompt),
                sampling=sampling,
                tokens_max=tokens_max,
                draft_max=draft_max,
                priority=priority,
            ),
            tokens=list(prompt),
            memory=self.scheduler.pools.memory(self.namer, space, len(prompt)),
            times=Deadlines(arrived_s=self.now_s, slo=self.limits.slo),
        )
        want = plain_text(prompt, sampling, tokens_max)
        reason = "stop" if want[-1] in sampling.stop_token_ids else "length"
        self.wanteds[sequence.sequence_id] = WantedText(sequence, tuple(prompt), want, reason)
        return sequence

    def cancel(self, sequence: Sequence, whole: bool) -> None:
        """Cancel one choice, or its whole request."""
        choice = None if whole else sequence.request.choice
        for wanted in self.wanteds.values():
            member = wanted.sequence
            if member.request.request_id == sequence.request.request_id and choice in (
                None,
                member.request.choice,
            ):
                if not wanted.ending:
                    phase = "in flight" if member.in_flight else "running"
                    if any(member is waiting for waiting in self.scheduler.running_set.waiting):
                        phase = "preempted" if member.tally.preemptions else "waiting"
                    self.counters[f"cancelled {phase}"] += 1
                wanted.ending = wanted.ending or "cancelled"
        self.scheduler.cancel(sequence.request.request_id, choice)
        for wanted in self.wanteds.values():
            if wanted.ending == "cancelled" and not wanted.sequence.in_flight:
                assert wanted.sequence.ended
                assert not wanted.sequence.memory.table.blocks, "a cancelled sequence holds blocks"
        self.check()

    def reject(self) -> None:
        """Let the scheduler end what it does not serve: no request that has a token."""
        for rejection in self.scheduler.reject(self.now_s):
            expired = rejection.finish_reason == "deadline_exceeded"
            assert expired or self.limits.slo_policy == "refuse", "refused though none is to be"
            assert expired or rejection.sequence.times.due_s < inf, (
                "refused though nothing was promised"
            )
            assert expired or rejection.retry_after_s > 0.0
            assert not expired or rejection.sequence.times.expires_s <= self.now_s, (
                "before its deadline"
            )
            for wanted in self.wanteds.values():
                if wanted.sequence.request.request_id == rejection.sequence.request.request_id:
                    assert not wanted.got, "a text broke off"
                    wanted.ending = wanted.ending or ("expired" if expired else "unmet")
                    self.counters[wanted.ending] += 1
        for wanted in self.wanteds.values():
            sequence = wanted.sequence
            late = sequence.times.expires_s <= self.now_s and not wanted.ending
            assert not late or has_begun(sequence), "it waits behind its deadline"
        self.check()

    def plan(self) -> bool:
        """Plan a round and let the target run it; returns False if there was none."""
        under_way = len(self.verdicts)
        self.now_s += self.rng.choice([0.0, 0.001, 0.1])
        self.reject()
        round_ = self.scheduler.plan(self.now_s)
        if round_ is None:
            assert under_way or self.scheduler.idle, "the scheduler is stuck"
            self.check()
            return False
        assert under_way < self.limits.pipeline_depth, "more rounds than lanes"
        self.check_round(round_)
        self.reader.read(round_)
        drafts = self.guesser.propose(round_)
        verdict = self.target.step(Proposal(round_, drafts))
        for decision, draft in zip(verdict.decisions, drafts, strict=True):
            check_path(decision, draft)
        self.check_device(round_)
        self.verdicts.append((round_, drafts, verdict))
        self.check()
        return True

    def commit(self, error: bool = False) -> None:
        """Hand the oldest verdict back; perhaps one of its rows has failed."""
        round_, drafts, verdict = self.verdicts.popleft()
        decisions = list(verdict.decisions)
        failed = 0
        if error:
            number = self.rng.randrange(len(decisions))
            decisions[number] = Decision(error="out of luck")
            failed = round_.rows[number].sequence_id
            self.counters["errors"] += self.wanteds[failed].ending == ""
        verdict = replace(verdict, decisions=tuple(decisions), drafts=drafts)
        before = {
            row.sequence_id: bool(self.wanteds[row.sequence_id].ending) for row in round_.rows
        }
        new_token_ids = self.scheduler.commit(verdict, self.now_s)
        sent_count = [progress.sequence.sequence_id for progress in new_token_ids]
        wanted = [
            row.sequence_id
            for row in round_.rows
            if not before[row.sequence_id] and (row.samples or row.sequence_id == failed)
        ]
        assert sent_count == wanted, "news of all that sampled and are wanted, in the order of rows"
        for progress in new_token_ids:
            self.take(progress, failed)
        self.check()

    def take(self, progress: SequenceProgress, failed: int) -> None:
        """Be the client of one sequence."""
        wanted = self.wanteds[progress.sequence.sequence_id]
        assert not wanted.ending, "something came after the last word"
        if progress.finish_reason == "failed":
            assert progress.sequence.sequence_id == failed, "another row failed"
            assert (progress.error, progress.tokens) == ("out of luck", ())
        else:
            assert progress.tokens
            assert len(progress.origins) == len(progress.tokens)
            logprobs = progress.sequence.request.sampling.logprobs >= 0
            assert len(progress.logprobs) == (len(progress.tokens) if logprobs else 0)
            wanted.got += progress.tokens
            assert wanted.got == wanted.want[: len(wanted.got)], "another text than the plain one"
            over = len(wanted.got) == len(wanted.want)
            assert progress.finish_reason == (wanted.reason if over else "")
        wanted.ending = progress.finish_reason
        self.counters[wanted.ending] += bool(wanted.ending)

    def finish(self) -> None:
        """Run every sequence to its end; none may starve."""
        for _ in range(2000):
            if self.scheduler.idle:
                break
            while self.plan():
                pass
            if self.verdicts:
                self.commit()
        assert self.scheduler.idle, "a sequence starved"
        while self.verdicts:
            self.commit()
        self.scheduler.check()
        assert self.scheduler.pool.used == 0
        assert all(wanted.ending for wanted in self.wanteds.values())
        self.count()
        self.flush()

    def flush(self) -> None:
        """Run one sequence more, so that the devices are sent all finished ids."""
        last = self.sequence("last", 0, [1], Sampling(temperature=0.0), 1)
        last.times.slo = NO_SLO
        self.scheduler.submit(last)
        assert self.plan()
        assert self.reader.histories.keys() == {last.sequence_id}, "an ended sequence is remembered"
        assert self.target.histories.keys() == {last.sequence_id}
        self.commit()

    # --- what must hold -------------------------------------------------------------------------

    def check(self) -> None:
        scheduler = self.scheduler
        scheduler.check()
        assert scheduler.load.running <= self.limits.rows_max
        assert scheduler.idle == (scheduler.load.running == 0 and scheduler.load.waiting == 0)
        alive = sum(not wanted.sequence.ended for wanted in self.wanteds.values())
        assert scheduler.load.running + scheduler.load.waiting == alive, "a sequence was lost"

    def check_round(self, round_: Round) -> None:
        size, limits = self.scheduler.pool.block_size, self.limits
        assert round_.rows, "an empty round"
        assert 0 <= round_.pipeline_slot < limits.pipeline_depth
        computed = sum(row.stop - row.start + row.draft_max for row in round_.rows)
        assert computed <= limits.tokens_max, "the token budget is exceeded"
        ids = [row.sequence_id for row in round_.rows]
        ids += [row.sequence_id for other, _, _ in self.verdicts for row in other.rows]
        assert len(ids) == len(set(ids)), "a sequence is in two rows at once"
        written: Counter[int] = Counter()
        for row in round_.rows:
            self.check_row(row)
            first, last = row.start // size, (row.stop + row.draft_max - 1) // size
            written.update(row.blocks[first : last + 1])
            self.counters["drafting rows"] += row.draft_max > 0
            self.counters["chunks"] += not row.samples
        assert all(count == 1 for count in written.values()), "two rows write to one block"

    def check_row(self, row: Row) -> None:
        wanted = self.wanteds[row.sequence_id]
        sequence, size = wanted.sequence, self.scheduler.pool.block_size
        assert not wanted.ending, "a row for a sequence that nobody wants"
        assert sequence.in_flight
        assert 0 <= row.start < row.stop <= len(sequence.tokens)
        assert row.samples == (row.stop == len(sequence.tokens))
        assert len(row.blocks) * size >= row.stop + row.draft_max, "slots without a block"
        assert row.draft_max <= min(self.limits.draft_max, sequence.request.draft_max)
        assert row.draft_max == 0 or row.samples
        generated = len(sequence.tokens) - sequence.request.prompt_count
        assert generated + row.draft_max + 1 <= sequence.request.tokens_max, "drafts beyond the end"
        if sequence.leader is not None and row.new_sequence is not None:
            assert sequence.leader.prefilled, "a follower started before its leader was ready"
        if row.new_sequence is not None and sequence.tally.preemptions == 0:
            assert row.start % size == 0
            assert sequence.tally.cached == min(row.start, sequence.request.prompt_count)
            self.counters["prefix hits"] += row.start > 0
            self.counters["followers' hits"] += row.start > 0 and sequence.leader is not None
        if row.new_sequence is not None and sequence.tally.preemptions > 0:
            self.counters["resumed"] += 1
            self.counters["resumed with text"] += generated > 0

    def check_device(self, round_: Round) -> None:
        """A device that sees rounds only has every text."""
        for row in round_.rows:
            sequence = self.wanteds[row.sequence_id].sequence
            assert self.reader.histories[row.sequence_id] == sequence.tokens
            prompt_count, sampling = self.target.openings[row.sequence_id]
            assert (prompt_count, sampling) == (
                sequence.request.prompt_count,
                sequence.request.sampling,
            )

    def count(self) -> None:
        """Compare the scheduler's counters with what its clients saw."""
        stats, wanteds = self.scheduler.stats, list(self.wanteds.values())
        tallies = [wanted.sequence.tally for wanted in wanteds]
        admitted = [one for one in wanteds if one.sequence.tally.cached is not None]
        first = [one for one in admitted if one.sequence.leader is None]
        assert stats.prompt_tokens == sum(len(wanted.prompt) for wanted in first)
        assert stats.prefix_hits == sum(one.sequence.tally.cached or 0 for one in first)
        assert stats.generated_tokens == sum(len(wanted.got) for wanted in wanteds)
        assert stats.preemptions == sum(tally.preemptions for tally in tallies)
        assert stats.draft_tokens == sum(tally.drafted for tally in tallies)
        assert stats.accepted_tokens == sum(stats.accepted_by_position)
        assert stats.accepted_tokens == sum(stats.accepted_by_source.values())
        assert stats.draft_tokens == sum(stats.drafted_by_source.values())
        assert max(stats.drafts_by_source.values(), default=0) <= stats.drafts
        for tally in tallies:
            assert tally.steps == sum(tally.accepted_histogram)
        self.counters["preemptions"] += stats.preemptions
        self.counters["accepted"] += stats.accepted_tokens
        self.counters["rejected"] += stats.draft_tokens - stats.accepted_tokens


def check_path(decision: Decision, draft: Draft) -> None:
    """What is accepted is one path of the draft, from its root."""
    parent = -1
    for node, token in zip(decision.path, decision.tokens, strict=False):
        assert (draft.parents[node], draft.tokens[node]) == (parent, token), "not a path"
        parent = node
    assert not decision.tokens or len(decision.tokens) == len(decision.path) + 1


def random_sampling(rng: Random) -> Sampling:
    return Sampling(
        temperature=rng.choice([0.0, 1.0]),
        repetition_penalty=rng.choice([1.0, 1.3]),
        logit_bias=rng.choice([(), ((STOP, 3.0),)]),
        tokens_min=rng.choice([0, 3]),
        stop_token_ids=rng.choice([(STOP,), (STOP, 5), ()]),
        seed=rng.getrandbits(64),
        logprobs=rng.choice([-1, 0]),
    )


def live(world: World) -> list[Sequence]:
    """Return every sequence that has not ended."""
    return [wanted.sequence for wanted in world.wanteds.values() if not wanted.ending]


def story(seed: int, steps: int = 60, policy: PolicyFactory | None = None) -> Counter[str]:
    """Run one random story to its end; returns what happened in it."""
    rng, hurry = Random(seed), Random(seed) if seed % 2 else None
    world = World(
        rng,
        block_count=rng.choice([6, 9, 14]),
        block_size=rng.choice([2, 3, 4]),
        limits=RoundLimits(
            pipeline_depth=rng.choice([1, 2, 3]),
            rows_max=rng.choice([2, 4, 8]),
            tokens_max=rng.choice([1, 5, 12, 30]),
            draft_max=rng.choice([0, 1, 4, 7]),
            # A step of the toy takes a millisecond, whatever it holds.
            slo=rng.choice([Slo(), Slo(tpot=0.0005), Slo(ttft=0.05, tpot=0.0005), Slo(ttft=1)]),
            slo_policy=hurry.choice(POLICIES) if hurry else "serve",
            in_order=seed % 4 == 3,
        ),
        lengths=rng.choice([None, TextLengths()]),
        hurry=hurry,
        state_slots=(0, 5, 24)[seed % 3],
        policy=policy,
    )
    for _ in range(steps):
        match rng.choice(["submit", "plan", "plan", "plan", "commit", "commit", "cancel", "error"]):
            case "submit" if len(live(world)) < 12:
                world.submit()
            case "plan":
                world.plan()
            case "commit" if world.verdicts:
                world.commit()
            case "error" if world.verdicts and rng.random() < 0.3:
                world.commit(error=True)
            case "cancel" if live(world) and rng.random() < 0.3:
                world.cancel(rng.choice(live(world)), rng.random() < 0.5)
    world.finish()
    return world.counters
