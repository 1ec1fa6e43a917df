"""The cache actor: turns requests into sequences, and progress into pieces."""

from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from draftwerk.actors.cache import Cache, piece
from draftwerk.actors.mailbox import mailbox
from draftwerk.actors.messages import (
    CacheMessage,
    Cancel,
    DetokenizerMessage,
    RoundOutputs,
)
from draftwerk.actors.monitoring.sequence_stats import SequenceStats
from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import CachePools
from draftwerk.cache.tables import BlockNamer
from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.options.all_options import extensions
from draftwerk.speculative.options.service.service_policy import ServicePolicy
from draftwerk.speculative.request import EncodedRequest, Options, Speculation
from draftwerk.speculative.rounds import NO_DRAFT, Decision, Proposal, Round, Verdict
from draftwerk.speculative.row_parts.chosen_logprob import ChosenLogprob
from draftwerk.speculative.row_parts.step_report import StepReport
from draftwerk.speculative.running_set import SequenceFactory
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.scheduler import RoundLimits, Scheduler
from draftwerk.speculative.sequence import Sequence, SequenceProgress
from tests.actors.loops import on_both_loops, settle

PLAIN = Options(sampling=Sampling(seed=5))


def encoded(options: Options = PLAIN, **how: object) -> EncodedRequest:
    return EncodedRequest(request_id="r", tokens=(1, 2, 3), options=options, **how)  # type: ignore[arg-type]


def make_cache(inbox: Any = None, draft: Any = None, detokenizer: Any = None, **how: Any) -> Cache:
    scheduler = Scheduler(
        CachePools(BlockPool(16, 4)), RoundLimits(draft_max=7), policy=ServicePolicy
    )
    return Cache(
        inbox=inbox,
        rounds=draft,
        detokenizer=detokenizer,
        scheduler=scheduler,
        factory=SequenceFactory(
            scheduler.pools,
            BlockNamer(b""),
            scheduler.limits,
            (0, 9),
            20,
            extensions(scheduler.cost, scheduler.limits),
        ),
        **{"clock": lambda: 0.0, **how},
    )


class Desk:
    """A cache actor with its neighbours' mailboxes, on a clock that a test moves."""

    def __init__(self) -> None:
        self.outbox, inbox = mailbox[CacheMessage](99)
        to_draft, self.rounds = mailbox[Proposal](1)
        to_detokenizer, self.sent = mailbox[DetokenizerMessage](99)
        self.streams = [self.outbox, inbox, to_draft, self.rounds, to_detokenizer, self.sent]
        self.now = 100.0
        self.cache = make_cache(inbox, to_draft, to_detokenizer, clock=lambda: self.now)
        self.scheduler = self.cache.scheduler

    async def send(self, *messages: CacheMessage) -> None:
        for message in messages:
            self.outbox.send_nowait(message)
        await settle()

    def decided(self, round_: Round, *decisions: Decision) -> Verdict:
        return Verdict(
            round_id=round_.round_id,
            pipeline_slot=round_.pipeline_slot,
            decisions=decisions,
            report=StepReport(device_ms=1.0, load=StepLoad(3, 1)),
            drafts=(NO_DRAFT,) * len(round_.rows),
        )


@asynccontextmanager
async def at_work() -> AsyncGenerator[Desk]:
    """Run a cache actor for the length of the block."""
    desk = Desk()
    with ExitStack() as streams:
        for stream in desk.streams:
            streams.enter_context(stream)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(desk.cache.run)
            yield desk
            tasks.cancel_scope.cancel()


@on_both_loops
async def test_a_request_is_announced_planned_and_reported() -> None:
    async with at_work() as desk:
        await desk.send(encoded())
        assert desk.sent.receive_nowait() == encoded()
        round_ = desk.rounds.receive_nowait().round
        await desk.send(desk.decided(round_, Decision(tokens=(9,))))
        generated = desk.sent.receive_nowait()
        assert isinstance(generated, RoundOutputs)
        (one,) = generated.pieces
        assert (one.request_id, one.choice, one.tokens, one.finish_reason) == ("r", 0, (9,), "stop")


@on_both_loops
async def test_all_that_has_come_meanwhile_shares_a_round() -> None:
    async with at_work() as desk:
        await desk.send(*[replace(encoded(), request_id=str(n)) for n in range(3)])
        assert len(desk.rounds.receive_nowait().round.rows) == 3


@on_both_loops
async def test_every_choice_has_its_branch_and_its_leader() -> None:
    async with at_work() as desk:
        await desk.send(encoded(replace(PLAIN, choices=3)))
        (row,) = desk.rounds.receive_nowait().round.rows
        assert row.new_sequence is not None
        assert row.new_sequence.sampling == Sampling(seed=5, branch=0, stop_token_ids=(0, 9))
        followers = list(desk.scheduler.running_set.waiting)
        assert [follower.request.sampling.branch for follower in followers] == [1, 2]
        assert all(follower.leader is not None for follower in followers)


@on_both_loops
async def test_a_cancel_follows_its_request_to_the_detokenizer() -> None:
    async with at_work() as desk:
        await desk.send(encoded(), Cancel(request_id="r"))
        assert isinstance(desk.sent.receive_nowait(), EncodedRequest)
        assert desk.sent.receive_nowait() == Cancel(request_id="r")
        assert desk.scheduler.idle


@on_both_loops
async def test_after_a_crash_a_request_goes_on_where_it_was() -> None:
    async with at_work() as desk:
        again = encoded(replace(PLAIN, choices=3), committed=((5,), (6, 7), (8,)), ended=(0,))
        await desk.send(again)
        assert desk.sent.receive_nowait() == again
        (row,) = desk.rounds.receive_nowait().round.rows
        assert row.new_sequence is not None
        assert (row.new_sequence.tokens, row.new_sequence.prompt_count) == ((1, 2, 3, 6, 7), 3)
        assert row.new_sequence.sampling.branch == 1


@on_both_loops
async def test_the_age_of_progress_counts_while_work_is_pending() -> None:
    async with at_work() as desk:
        assert desk.cache.progress_age_s() == 0.0
        await desk.send(encoded())
        desk.now += 3
        assert desk.cache.progress_age_s() == 3.0
        await desk.send(replace(encoded(), request_id="another"))
        assert desk.cache.progress_age_s() == 3.0, "new work is no progress"
        await desk.send(desk.decided(desk.rounds.receive_nowait().round, Decision(tokens=(4,))))
        assert desk.cache.progress_age_s() == 0.0
        desk.now += 2
        await desk.send(Cancel(request_id="another"))
        assert desk.cache.progress_age_s() == 2.0
        await desk.send(
            desk.decided(
                desk.rounds.receive_nowait().round, Decision(tokens=(9,)), Decision(tokens=(4,))
            )
        )
        desk.now += 5
        assert desk.cache.progress_age_s() == 0.0, "an idle server is not stuck"


def made(options: Options, **how: object) -> Sequence:
    return make_cache().factory._text(encoded(options, **how), 1, 0.0)


def test_a_sequence_obeys_its_options() -> None:
    speculation = Speculation(methods=("ngram",), draft_max=2)
    options = replace(PLAIN, tokens_max=4, priority=3, tenant="t", speculation=speculation)
    sequence = made(options, prediction=(7, 8))
    request = sequence.request
    assert (request.request_id, request.choice) == ("r", 1)
    assert (sequence.tokens, request.prompt_count) == ([1, 2, 3], 3)
    assert (request.tokens_max, request.draft_max, request.priority) == (4, 2, 3)
    assert (request.methods, request.prediction) == (("ngram",), (7, 8))
    assert request.name_space == "tenant t"


@pytest.mark.parametrize(("asked", "given"), [(None, 17), (5, 5), (17, 17), (99, 17)])
def test_a_text_is_as_long_as_asked_for_or_as_the_context_holds(
    asked: int | None, given: int
) -> None:
    assert made(replace(PLAIN, tokens_max=asked)).request.tokens_max == given


def test_a_request_that_ignores_the_end_has_no_stop_tokens() -> None:
    assert made(replace(PLAIN, ignore_eos=True)).request.sampling.stop_token_ids == ()


@pytest.mark.parametrize(
    ("speculation", "length"),
    [
        (Speculation(), 7),
        (Speculation(draft_max=3), 3),
        (Speculation(draft_max=30), 7),
        (Speculation(draft_max=0), 0),
        (Speculation(enabled=False, draft_max=3), 0),
    ],
)
def test_a_request_drafts_up_to_its_own_and_the_servers_limit(
    speculation: Speculation, length: int
) -> None:
    assert speculation.limit(7) == length


def test_no_source_is_asked_and_no_head_runs_for_a_request_without_drafts() -> None:
    assert made(PLAIN).request.methods is None
    for speculation in Speculation(enabled=False), Speculation(draft_max=0, methods=("head",)):
        assert made(replace(PLAIN, speculation=speculation)).request.methods == ()


def test_a_piece_carries_progress_and_cost() -> None:
    sequence = made(PLAIN)
    sequence.tally.cached = 2
    sequence.tally.preemptions = 1
    sequence.tally.steps = 4
    sequence.tally.drafted = 5
    sequence.tally.accepted_histogram = [3, 1]
    progress = SequenceProgress(sequence, (5,), ("ngram",), (ChosenLogprob(-1.0),), "length")
    told = piece(progress)
    assert (told.choice, told.tokens) == (1, (5,))
    assert (told.origins, told.finish_reason) == (("ngram",), "length")
    assert told.stats == SequenceStats.of(sequence)
    assert told.stats == SequenceStats(
        prompt_count=3, cached_count=2, step_count=4, draft_count=5, accepted_histogram=(3, 1)
    )


def test_a_sequence_that_was_never_admitted_has_nothing_cached() -> None:
    assert SequenceStats.of(made(PLAIN)).cached_count == 0
