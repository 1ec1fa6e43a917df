"""The pipeline: every mailbox and actor, in the order the data flows.

    client ── generate ──> Tokenizer ──> Cache ──> Draft ──> Verifier
                 ^                       ^  │                   │
                 │                       └──┼───── verdict ─────┘
                 └── ledger <── Detokenizer <┘

Cache → Draft → Verifier → Cache is the only cycle; it runs on credits (`pipeline_depth`), so it
never waits.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, ClassVar

import anyio

from draftwerk.actors.cache import Cache
from draftwerk.actors.detokenizer import Detokenizer
from draftwerk.actors.devices.device import Device, ThreadWorker, Worker
from draftwerk.actors.devices.restarts import RestartLimit
from draftwerk.actors.draft import Drafter
from draftwerk.actors.mailbox import Inbox, Outbox, mailbox
from draftwerk.actors.messages import (
    CacheMessage,
    DetokenizerMessage,
    RouterMessage,
    TokenizerMessage,
)
from draftwerk.actors.monitoring.figures import Figures
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.actors.requests.audit import Audit
from draftwerk.actors.requests.ledger import Ledger
from draftwerk.actors.texts.text_tools import TextTools
from draftwerk.actors.tokenizer import Tokenizer
from draftwerk.actors.verifier import Verifier
from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import CachePools, MemoryKind
from draftwerk.cache.tables import BlockNamer
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.load.size_limits import MemorySizes, RequestSizes
from draftwerk.speculative.request import CHOICES_MAX
from draftwerk.speculative.rounds import Proposal, Verdict
from draftwerk.speculative.running_set import SequenceFactory
from draftwerk.speculative.scheduler import OptionSet, PolicyFactory, RoundLimits, Scheduler

INSPECT_S = 5.0


@dataclass(slots=True, frozen=True, kw_only=True)
class EngineParts:
    """The parts of an engine; devices come from factories, so that they can be made again."""

    text: TextTools
    target: Callable[[], Device[Proposal, Verdict]]
    block_count: int
    block_size: int
    kinds: tuple[Callable[[int, int, int], MemoryKind | None], ...] = ()
    """Makers of the memory that its layers have beside blocks, if any: behind so many blocks, of so
    many slots, for so many rows under way of a sequence."""
    context_max: int
    """Tokens that the model can attend to."""
    stop_token_ids: tuple[int, ...]
    limits: RoundLimits = field(default_factory=RoundLimits)
    proposer: Callable[[], Proposer | None] = field(default=lambda: Proposer(("ngram",)))
    """The draft sources; None instead where the target's process runs them, as it must to run
    ahead."""
    options: OptionSet
    """The options that requests may ask for; one that is not here is not asked for."""
    requests_max: int = 256
    name_secret: bytes = b""
    """Keys the names of cached blocks."""
    step_cost: StepCost = field(default_factory=StepCost)
    """The costs of the target's steps, as far as they were measured."""
    worker: Worker = field(default_factory=ThreadWorker)
    """Where prompts are tokenized."""
    restarts: Callable[[], RestartLimit] = RestartLimit
    trace: Trace = field(default_factory=Trace)
    audit: Audit = field(default_factory=lambda: Audit(0.0))
    attachments: tuple["EngineAttachment", ...] = ()
    """Whatever works beside the actors."""
    processes: Callable[[], dict[str, int | None]] = dict[str, int | None]
    """The model processes by what they are for; None for one that is away."""

    @property
    def tokens_max(self) -> int:
        """Prompt and generated tokens of one choice: the context, if the pool can hold it."""
        return min(self.context_max, self.block_count * self.block_size)


class EngineAttachment:
    """Something beside an engine's actors, which do not know it; it overrides what it needs."""

    messages_max: ClassVar = 0
    """Messages of it in the cache's mailbox at most."""

    def attach(
        self,
        parts: EngineParts,
        scheduler: Scheduler,
        namer: BlockNamer,
        cache: Outbox[CacheMessage],
    ) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """Begin anew with a pipeline; returns what runs beside its actors, if anything."""
        return None

    async def flush(self) -> None:
        """Keep what is to outlive the engine, which ends."""

    def report(self, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot with its figures."""
        return snapshot


class Pipeline:
    """One generation of actors and their mailboxes; after a crash comes the next."""

    def __init__(self, parts: EngineParts, figures: Figures, policy: PolicyFactory) -> None:
        waits, pipeline_depth = figures.waits, parts.limits.pipeline_depth
        # A live request sends one Submit, a Cancel for each choice at most, and one for the whole.
        messages_max = parts.requests_max * (CHOICES_MAX + 2)

        to_tokenizer, requests = mailbox[TokenizerMessage](messages_max, waits["tokenizer"])
        # Whatever the tokenizer passes on, a verdict for each pipeline slot, and attachments'.
        attached_max = sum(each.messages_max for each in parts.attachments)
        cache_max = messages_max + pipeline_depth + attached_max
        to_cache, cache_inbox = mailbox[CacheMessage](cache_max, waits["cache"])
        # The cycle's credits: a round is in one place at a time.
        to_draft, undrafted = mailbox[Proposal](pipeline_depth, waits["draft"])
        to_verifier, proposals = mailbox[Proposal](pipeline_depth, waits["verifier"])
        # The cache may wait here, but never long: from here on no actor waits for the cache.
        results_max = messages_max + pipeline_depth
        to_detokenizer, results = mailbox[DetokenizerMessage](results_max, waits["detokenizer"])
        # For each request a refusal or a Started, and what one round can cause: a delta and an
        # ending a choice.
        events_max = parts.requests_max * (2 * CHOICES_MAX + 1)
        to_ledger, events = mailbox[RouterMessage](events_max, waits["ledger"])
        self.requests, self.events = to_tokenizer, events
        self.mailboxes: dict[str, tuple[Outbox[Any], Inbox[Any]]] = {
            "tokenizer": (to_tokenizer, requests),
            "cache": (to_cache, cache_inbox),
            "draft": (to_draft, undrafted),
            "verifier": (to_verifier, proposals),
            "detokenizer": (to_detokenizer, results),
            "ledger": (to_ledger, events),
        }
        """By the name of the reader, in the order the data flows."""

        blocks = parts.block_count, parts.block_size
        kinds = (make(*blocks, parts.limits.rows_in_flight) for make in parts.kinds)
        pools = CachePools(BlockPool(*blocks), tuple(kind for kind in kinds if kind is not None))
        own: dict[str, Any] = {}
        for kind in pools.kinds:
            own.update(kind.sizes(parts.tokens_max))
        memory = MemorySizes(blocks=blocks, round_max=parts.limits.tokens_max, **own)
        scheduler = Scheduler(pools, parts.limits, figures.counts, parts.step_cost, policy)
        namer = BlockNamer(parts.name_secret)
        beside = (each.attach(parts, scheduler, namer, to_cache) for each in parts.attachments)
        self.beside = [run for run in beside if run is not None]
        """Attachments' parts, which run beside the actors."""

        proposer = parts.proposer()
        # Where the target's process drafts, rounds skip the draft actor.
        to_rounds = to_verifier if proposer is None else to_draft

        self.tokenizer = Tokenizer(
            requests,
            to_cache,
            to_ledger,
            parts.text,
            parts.options.check,
            RequestSizes(parts.tokens_max, parts.text.vocab_size, memory),
            parts.worker,
            parts.trace,
        )
        self.cache = Cache(
            inbox=cache_inbox,
            rounds=to_rounds,
            detokenizer=to_detokenizer,
            scheduler=scheduler,
            factory=SequenceFactory(
                pools,
                namer,
                parts.limits,
                parts.stop_token_ids,
                parts.tokens_max,
                parts.options.extensions(parts.step_cost, parts.limits),
            ),
            trace=parts.trace,
        )
        self.drafter = Drafter(undrafted, to_verifier, proposer, parts.trace)
        self.verifier = Verifier(proposals, to_cache, parts.target(), figures, pipeline_depth)
        self.detokenizer = Detokenizer(results, to_ledger, parts.text, figures)

    def check(self) -> None:
        """Assert every invariant, between rounds."""
        self.cache.scheduler.check()
        self.cache.scheduler.cost.check()
        if self.drafter.proposer is not None:
            self.drafter.proposer.check()
        self.verifier.model.check()

    async def _inspect(self) -> None:
        """Check everything in an idle moment after some work; a failure is an actor's."""
        checked = 0
        while True:
            await anyio.sleep(INSPECT_S)
            # A check walks over every block, and no request shall wait for that.
            if self.cache.scheduler.idle and self.cache.committed > checked:
                checked = self.cache.committed
                self.check()

    async def run(self, ledger: Ledger) -> None:
        """Run every actor, until one fails or the scope is cancelled."""
        try:
            async with anyio.create_task_group() as actors:
                actors.start_soon(self.tokenizer.run)
                for run in self.beside:
                    actors.start_soon(run)
                actors.start_soon(self.cache.run)
                actors.start_soon(self.drafter.run)
                actors.start_soon(self.verifier.run)
                actors.start_soon(self.detokenizer.run)
                actors.start_soon(self._inspect)
                # The ledger is no actor, since it outlives this group: what the actors send is put
                # into it here.
                async for message in self.events:
                    ledger.deliver(message)
        finally:
            # Senders see that this pipeline is over, and what they had stays theirs.
            for outbox, inbox in self.mailboxes.values():
                outbox.close()
                inbox.close()
