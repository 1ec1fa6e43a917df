"""The engine: every mailbox and actor, in the order the data flows, and the ledger beside them.

    client ── generate ──> Tokenizer ──> Cache ──> Draft ──> Verifier
                 ^                       ^  │                   │
                 │                       └──┼───── verdict ─────┘
                 └── ledger <── Detokenizer <┘

Cache → Draft → Verifier → Cache is the only cycle; it runs on credits (`pipeline_depth`), so it
never waits. If an actor or a device dies, all actors are built anew and each live request is
submitted again, with the tokens that its client already has: a crash is only a preemption.
"""

import logging
from collections.abc import AsyncGenerator, Callable, KeysView
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, cast

import anyio

from draftwerk.actors.admitting import check_request, events_max
from draftwerk.actors.audit import Audit
from draftwerk.actors.cache import Cache
from draftwerk.actors.client_prompts import Prompt
from draftwerk.actors.detokenizer import Detokenizer
from draftwerk.actors.devices.device import (
    Device,
    DeviceLostError,
    ThreadWorker,
    Worker,
    queue_of,
)
from draftwerk.actors.devices.recovering_target import RecoveryStats
from draftwerk.actors.draft import Drafter
from draftwerk.actors.ledger import Ledger
from draftwerk.actors.mailbox import Inbox, Port, mailbox
from draftwerk.actors.messages import (
    CacheMessage,
    DetokenizerMessage,
    Event,
    RouterMessage,
    Submit,
    TokenizerMessage,
)
from draftwerk.actors.monitoring.device_clock import DeviceClock
from draftwerk.actors.monitoring.drain_rate import DrainRate
from draftwerk.actors.monitoring.histogram import WAITS_S, Histogram
from draftwerk.actors.monitoring.request_stages import RequestStages
from draftwerk.actors.monitoring.snapshot import ActorFigures, ModelFigures, Snapshot
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.actors.restarts import RestartLimit
from draftwerk.actors.side_pipes import PREFILL_MESSAGES_MAX, SIDE_MESSAGES_MAX, SidePipes
from draftwerk.actors.text import TextTools
from draftwerk.actors.tier_two import BlockStore
from draftwerk.actors.tokenizer import TextLimits, Tokenizer
from draftwerk.actors.verifier import Verifier
from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.prefix import BlockNamer
from draftwerk.cache.recurrent_states import NO_STATES, StateRules, StateSlots
from draftwerk.speculative.beams.decisions import WIDTH_MAX
from draftwerk.speculative.costs.roofline import Roofline
from draftwerk.speculative.costs.step_cost import MeasuredStep, StepCost
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.protocol.rounds import Draft, Proposal, Round, Verdict
from draftwerk.speculative.requests.request import CHOICES_MAX, Options
from draftwerk.speculative.scheduler.lengths import TextLengths
from draftwerk.speculative.scheduler.opening import Opener
from draftwerk.speculative.scheduler.scheduler import RoundLimits, Scheduler
from draftwerk.speculative.scheduler.stats import SchedulerStats

MAILBOXES = ("tokenizer", "cache", "draft", "verifier", "detokenizer", "ledger")
"""By the name of the reader, in the order the data flows."""
DEFAULT_LIMITS = RoundLimits()
THREADS = ThreadWorker()
INSPECT_S = 5.0
FLUSH_S = 10.0
"""For blocks that are not yet in tier two when the server ends."""
LONG_LIFE_S = 30.0
"""A restart after this long counts as a success, even if no round was committed."""

log = logging.getLogger("draftwerk")


def text_proposer() -> Proposer:
    """Return a proposer that drafts from each request's own text."""
    return Proposer(("ngram",))


@dataclass(slots=True, frozen=True, kw_only=True)
class EngineParts:
    """What an engine is made of; devices come from factories, so that they can be made again."""

    text: TextTools
    target: Callable[[], Device[Proposal, Verdict]]
    draft: Callable[[], Device[Round, tuple[Draft, ...]] | None] = lambda: None
    """The draft model, if there is one."""
    prefill: Callable[[], tuple[Device[Proposal, Verdict], ...]] = tuple
    """What computes prompts alone, over the target's pages."""
    block_count: int
    block_size: int
    states: StateSlots = NO_STATES
    """Of a model with recurrent layers."""
    context_max: int
    """Tokens that the model can attend to."""
    stop_token_ids: tuple[int, ...]
    limits: RoundLimits = DEFAULT_LIMITS
    proposer: Callable[[], Proposer | None] = text_proposer
    """The draft sources that the engine runs; with none and no draft model nothing is drafted.

    Instead of a proposer None, where the target's process runs them: as it must to run ahead.
    """
    requests_max: int = 256
    name_secret: bytes = b""
    """Keys the names of cached blocks."""
    step_costs: tuple[MeasuredStep, ...] = ()
    """Measured steps of the target."""
    roofline: Roofline | None = None
    """The target's on its device, where that was measured."""
    expects_lengths: bool = True
    """Whether a sequence enters only if all that run will probably fit to their ends."""
    worker: Worker = THREADS
    """Where prompts are tokenized."""
    restarts: Callable[[], RestartLimit] = RestartLimit
    trace: Trace = field(default_factory=Trace)
    audit: Audit = field(default_factory=lambda: Audit(0.0))
    recoveries: RecoveryStats = field(default_factory=RecoveryStats)
    """Of the target's device, if it recovers by itself."""
    store: BlockStore | None = None
    """Tier two: where blocks are kept that are lost here."""
    processes: Callable[[], dict[str, int | None]] = dict[str, int | None]
    """The model processes by what they are for; None for one that is away."""

    @property
    def tokens_max(self) -> int:
        """Prompt and generated tokens of one choice: the context, if the pool can hold it."""
        return min(self.context_max, self.block_count * self.block_size)


def width_max(states: StateSlots) -> int:
    """Return how wide a beam may be: each member reads a recurrent state and writes one, and the
    first may go on from a snapshot."""
    return min(WIDTH_MAX, (states.count - 1) // 2) if states.count else WIDTH_MAX


def state_rules(parts: EngineParts) -> StateRules | None:
    """Return what is common to the states of all sequences; None without recurrent layers."""
    slots = parts.states
    if not slots.count:
        return None
    # What is read, what is written, and with two rounds under way what the second one writes.
    own = 2 + parts.limits.run_ahead
    return StateRules(BlockPool(slots.count, 1), own, parts.block_size, slots.interval)


@dataclass(slots=True)
class Measurements:
    """What is counted and learnt across all pipelines."""

    step_cost: StepCost
    lengths: TextLengths | None
    stats: SchedulerStats = field(default_factory=SchedulerStats)
    waits: dict[str, Histogram] = field(
        default_factory=lambda: {name: Histogram(WAITS_S) for name in MAILBOXES}
    )
    device_clock: DeviceClock = field(default_factory=DeviceClock)
    stages: RequestStages = field(default_factory=RequestStages)


class Pipeline:
    """One generation of actors and their mailboxes; after a crash comes the next."""

    def __init__(self, parts: EngineParts, measurements: Measurements) -> None:
        waits = measurements.waits
        pipeline_depth = parts.limits.pipeline_depth
        # A live request sends one Submit, a Cancel for each choice at most, and one for the whole.
        messages_max = parts.requests_max * (CHOICES_MAX + 2)

        self.to_tokenizer = Port[TokenizerMessage](messages_max, waits["tokenizer"])
        # Whatever the tokenizer passes on, a verdict for each pipeline slot, and the side pipes'.
        prefill = parts.prefill()
        side_max = SIDE_MESSAGES_MAX + PREFILL_MESSAGES_MAX * len(prefill)
        self.to_cache = Port[CacheMessage](messages_max + pipeline_depth + side_max, waits["cache"])
        # The cycle's credits: a round is in one place at a time.
        self.to_draft = Port[Round](pipeline_depth, waits["draft"])
        self.to_verifier = Port[Proposal](pipeline_depth, waits["verifier"])
        # The cache may wait here, but never long: from here on no actor waits for the cache.
        self.to_detokenizer = Port[DetokenizerMessage](
            messages_max + pipeline_depth, waits["detokenizer"]
        )
        # For each request a refusal or a Started, and what one round can cause: a delta and an
        # ending a choice.
        self.to_ledger = Port[RouterMessage](
            parts.requests_max * (2 * CHOICES_MAX + 1), waits["ledger"]
        )

        scheduler = Scheduler(
            BlockPool(parts.block_count, parts.block_size),
            parts.limits,
            measurements.stats,
            measurements.step_cost,
            measurements.lengths,
            state_rules(parts),
        )
        namer = BlockNamer(parts.name_secret)
        self.side = SidePipes(self.to_cache, messages_max, waits, parts.trace)
        if parts.store is not None:
            self.side.add_tier_two(scheduler, namer, parts.store, parts.worker)
        self.side.add_prefill(prefill)

        self.tokenizer = Tokenizer(
            self.to_tokenizer.inbox,
            self.side.entrance.outbox,
            self.to_ledger.outbox,
            parts.text,
            TextLimits(
                parts.tokens_max,
                blocks=(parts.block_count, parts.block_size),
                round_max=parts.limits.tokens_max,
                width_max=width_max(parts.states),
            ),
            parts.worker,
            parts.trace,
        )
        self.cache = Cache(
            inbox=self.to_cache.inbox,
            draft=self.to_draft.outbox,
            detokenizer=self.to_detokenizer.outbox,
            scheduler=scheduler,
            opener=Opener(
                scheduler.pool,
                namer,
                parts.limits,
                parts.stop_token_ids,
                parts.tokens_max,
                scheduler.running_set.states,
            ),
            trace=parts.trace,
            prefill=self.side.to_prefill,
        )
        self.drafter = Drafter(
            self.to_draft.inbox,
            self.to_verifier.outbox,
            parts.proposer(),
            parts.draft(),
            parts.trace,
        )
        self.verifier = Verifier(
            self.to_verifier.inbox,
            self.to_cache.outbox,
            queue_of(parts.target()),
            parts.trace,
            measurements.device_clock,
            pipeline_depth,
        )
        self.detokenizer = Detokenizer(
            self.to_detokenizer.inbox,
            self.to_ledger.outbox,
            parts.text,
            parts.trace,
            measurements.stages,
        )

    @property
    def ports(self) -> dict[str, Port[Any]]:
        """Every mailbox, by the name of its reader."""
        ports = (
            self.to_tokenizer,
            self.to_cache,
            self.to_draft,
            self.to_verifier,
            self.to_detokenizer,
            self.to_ledger,
        )
        found: dict[str, Port[Any]] = dict(zip(MAILBOXES, ports, strict=True))
        return found | self.side.ports

    def check(self) -> None:
        """Assert what must hold between rounds."""
        self.cache.scheduler.check()
        self.cache.scheduler.cost.check()
        if self.drafter.proposer is not None:
            self.drafter.proposer.check()
        self.verifier.model.check()

    async def _inspect(self) -> None:
        """Check everything in the first idle moment after some work; a failure is an actor's."""
        checked = 0
        while True:
            await anyio.sleep(INSPECT_S)
            if self.cache.scheduler.idle and self.cache.committed > checked:
                checked = self.cache.committed
                self.check()

    async def run(self, ledger: Ledger) -> None:
        """Run every actor, until one fails or the scope is cancelled."""
        try:
            async with anyio.create_task_group() as actors:
                actors.start_soon(self.tokenizer.run)
                self.side.start(actors)
                actors.start_soon(self.cache.run)
                actors.start_soon(self.drafter.run)
                actors.start_soon(self.verifier.run)
                actors.start_soon(self.detokenizer.run)
                actors.start_soon(self._inspect)
                async for message in self.to_ledger.inbox:
                    ledger.deliver(message)
        finally:
            for port in self.ports.values():
                port.close()


class Engine:
    """The way in: takes requests, hands back streams, and keeps the actors running."""

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self._measurements = Measurements(
            StepCost(parts.step_costs, parts.roofline),
            TextLengths() if parts.expects_lengths else None,
        )
        self._pipeline = Pipeline(parts, self._measurements)
        self._ledger = Ledger(send=self._send, on_closed=self._on_closed)
        self._drain_rate = DrainRate()
        self._restarts = 0
        self._running = False
        """Not between two pipelines."""
        self._closed_to = ""
        """Why no more requests are taken; empty while they are."""
        self._empty = anyio.Event()

    @asynccontextmanager
    async def generate(
        self,
        prompt: Prompt,
        options: Options,
        *,
        request_id: str,
        committed: tuple[tuple[int, ...], ...] = (),
        ended: tuple[int, ...] = (),
    ) -> AsyncGenerator[Inbox[Event]]:
        """Submit a request and stream its events; leaving the block cancels whatever is left.

        A request that another engine began goes on behind the tokens `committed` of each choice;
        the choices in `ended` are over.

        The stream yields Started, then Delta and Ended events, `options.choices` Ended in all, and
        then ends; or, at any place, a Failed, and then ends. Raises OverloadedError or
        DrainingError before anything is queued, and ValueError if the id is in use.
        """
        self._admit(options, request_id)
        submit = Submit(
            request_id=request_id,
            prompt=prompt,
            options=options,
            arrived_s=anyio.current_time(),
            committed=committed,
            ended=ended,
        )
        events, stream = mailbox[Event](events_max(options, self._parts.tokens_max))
        entry = self._ledger.open(submit, events)
        try:
            with stream:
                yield stream
        finally:
            self._ledger.leave(entry)
            self._parts.audit.offer(entry)

    def snapshot(self) -> Snapshot:
        """Return the state and the counters of this moment."""
        scheduler, found = self._pipeline.cache.scheduler, self._measurements
        counts = found.stats.copy()
        counts.recomputed_tokens += self._parts.recoveries.redone_tokens
        return Snapshot(
            load=scheduler.load,
            counts=counts,
            actors=ActorFigures(
                restarts=self._restarts,
                mailbox_depths={
                    name: port.inbox.depth for name, port in self._pipeline.ports.items()
                },
                mailbox_waits={name: waits.copy() for name, waits in found.waits.items()},
                progress_age_s=self._pipeline.cache.progress_age_s(),
                actor_ages_s=self._parts.trace.ages_s(),
            ),
            models=ModelFigures(
                target_up=self._running and self._pipeline.verifier.is_ready,
                draft_up=self._pipeline.drafter.up,
                processes=self._parts.processes(),
                recoveries=self._parts.recoveries.recoveries,
                device_busy_s=dict(found.device_clock.busy_s),
                device_gaps=found.device_clock.gaps.copy(),
            ),
            store={} if self._parts.store is None else self._parts.store.counters(),
            request_stages=found.stages.copy(),
            audits=dict(self._parts.audit.counts),
            draining=bool(self._closed_to),
        )

    def trace(self) -> list[dict[str, object]]:
        """Return what the actors did lately, in Chrome's trace format."""
        return self._parts.trace.chrome()

    async def drain(self) -> None:
        """Refuse new requests and return when the last live one has ended."""
        self._closed_to = "the server is shutting down"
        await self.idle()

    async def idle(self) -> None:
        """Return once no request is live."""
        while self._ledger.entries:
            await self._empty.wait()

    async def supervise(self) -> None:
        """Keep a pipeline running; raises its failure once there have been too many."""
        limit = self._parts.restarts()
        while True:
            begun = anyio.current_time()
            try:
                self._running = True
                await self._pipeline.run(self._ledger)
            except Exception as error:
                self._running = False
                report(error)
                now = anyio.current_time()
                cache = self._pipeline.cache
                had_model = self._pipeline.verifier.up
                fruitful = cache.committed > 0 or now - begun > LONG_LIFE_S
                pause_s = limit.pause(now, fruitful=fruitful)
                if pause_s is None:
                    self.stop("the engine failed too often")
                    raise
                await anyio.sleep(pause_s)
                self._restarts += 1
                self._pipeline = Pipeline(self._parts, self._measurements)
                # A model that did not even come up was not failed by any request.
                self._ledger.resubmit(cache.scheduler.computed_counts() if had_model else {})
            except BaseExceptionGroup as group:
                raise without_bugs(group) from None

    @property
    def block_size(self) -> int:
        """Tokens in a block of the KV cache."""
        return self._parts.block_size

    @property
    def name_secret(self) -> bytes:
        """What keys the names of cached blocks."""
        return self._parts.name_secret

    @property
    def limits(self) -> tuple[int, ...]:
        """Sizes that decide which requests are refused."""
        parts = self._parts
        return parts.tokens_max, parts.block_count, parts.block_size, parts.limits.tokens_max

    def cached_names(self) -> KeysView[bytes]:
        """Return the names of the blocks in the prefix cache, as a live view."""
        return self._pipeline.cache.scheduler.pool.names

    def stop(self, reason: str) -> None:
        """Take no more requests, and end each one that still waits with its last event."""
        self._closed_to = reason
        self._ledger.fail(reason)

    async def flush(self) -> None:
        """Keep in tier two what is in the cache and not kept yet."""
        if self._pipeline.side.tier_two is not None:
            await self._pipeline.side.tier_two.write_behind.flush()

    def check(self) -> None:
        """Assert that blocks and tables agree, and that every draft source is sound."""
        self._pipeline.check()

    def _admit(self, options: Options, request_id: str) -> None:
        check_request(
            options,
            request_id,
            live=self._ledger.entries,
            has_place=len(self._ledger.entries) < self._parts.requests_max,
            closed_to=self._closed_to,
            drain_rate=self._drain_rate,
        )

    def _send(self, message: TokenizerMessage) -> None:
        # Closed between two pipelines: then the ledger sends it to the next one.
        with suppress(anyio.ClosedResourceError):
            self._pipeline.to_tokenizer.outbox.send_nowait(message)

    def _on_closed(self) -> None:
        self._drain_rate.record(anyio.current_time())
        if not self._ledger.entries:
            self._empty.set()
            self._empty = anyio.Event()


def report(error: Exception) -> None:
    """Log why the actors are started again: a lost device in a line, a bug with its traceback."""
    causes = leaves(error)
    for cause in causes:
        if isinstance(cause, DeviceLostError):
            log.warning("starting the model again: %s", cause)
    if not all(isinstance(cause, DeviceLostError) for cause in causes):
        log.error("starting the actors again", exc_info=error)


def without_bugs(group: BaseExceptionGroup[BaseException]) -> BaseExceptionGroup[BaseException]:
    """Return what ended the actors from outside; an actor that failed just then changes nothing."""
    bugs, rest = group.split(Exception)
    if bugs is not None and rest is not None:
        report(bugs)
        return rest
    return group


def leaves(error: BaseException) -> list[BaseException]:
    """Return what is inside nested groups of exceptions."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    group = cast("BaseExceptionGroup[BaseException]", error)
    return [leaf for each in group.exceptions for leaf in leaves(each)]


@asynccontextmanager
async def running(parts: EngineParts) -> AsyncGenerator[Engine]:
    """Run an engine for the length of the block; requests that wait at its end get a last event."""
    engine = Engine(parts)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.supervise)
            tasks.start_soon(parts.audit.run, engine)
            yield engine
            with anyio.move_on_after(FLUSH_S):
                await engine.flush()
            tasks.cancel_scope.cancel()
    finally:
        engine.stop("the server has stopped")
