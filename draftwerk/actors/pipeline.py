"""The pipeline: every mailbox and actor, in the order the data flows.

    client ── generate ──> Tokenizer ──> Cache ──> Draft ──> Verifier
                 ^                       ^  │                   │
                 │                       └──┼───── verdict ─────┘
                 └── ledger <── Detokenizer <┘

Cache → Draft → Verifier → Cache is the only cycle; it runs on credits (`pipeline_depth`), so it
never waits.
"""

from typing import Any

import anyio

from draftwerk.actors.cache import Cache
from draftwerk.actors.detokenizer import Detokenizer
from draftwerk.actors.draft import Drafter
from draftwerk.actors.engine_parts import (
    MAILBOXES,
    EngineParts,
    Measurements,
    cache_pools,
    memory_sizes,
)
from draftwerk.actors.mailbox import Mailbox
from draftwerk.actors.messages import (
    CacheMessage,
    DetokenizerMessage,
    RouterMessage,
    TokenizerMessage,
)
from draftwerk.actors.requests.ledger import Ledger
from draftwerk.actors.tokenizer import TextLimits, Tokenizer
from draftwerk.actors.verifier import Verifier
from draftwerk.cache.tables import BlockNamer
from draftwerk.speculative.opening import SequenceFactory
from draftwerk.speculative.request import CHOICES_MAX
from draftwerk.speculative.rounds import Proposal
from draftwerk.speculative.scheduler import Scheduler

INSPECT_S = 5.0


class Pipeline:
    """One generation of actors and their mailboxes; after a crash comes the next."""

    def __init__(self, parts: EngineParts, measurements: Measurements) -> None:
        # These and the other measurements go on counting in the next pipeline.
        waits = measurements.waits
        pipeline_depth = parts.limits.pipeline_depth
        # A live request sends one Submit, a Cancel for each choice at most, and one for the whole.
        messages_max = parts.requests_max * (CHOICES_MAX + 2)

        self.to_tokenizer = Mailbox[TokenizerMessage](messages_max, waits["tokenizer"])
        # Whatever the tokenizer passes on, a verdict for each pipeline slot, and attachments'.
        attached_max = sum(each.messages_max for each in parts.attachments)
        cache_max = messages_max + pipeline_depth + attached_max
        self.to_cache = Mailbox[CacheMessage](cache_max, waits["cache"])
        # The cycle's credits: a round is in one place at a time.
        self.to_draft = Mailbox[Proposal](pipeline_depth, waits["draft"])
        self.to_verifier = Mailbox[Proposal](pipeline_depth, waits["verifier"])
        # The cache may wait here, but never long: from here on no actor waits for the cache.
        self.to_detokenizer = Mailbox[DetokenizerMessage](
            messages_max + pipeline_depth, waits["detokenizer"]
        )
        # For each request a refusal or a Started, and what one round can cause: a delta and an
        # ending a choice.
        self.to_ledger = Mailbox[RouterMessage](
            parts.requests_max * (2 * CHOICES_MAX + 1), waits["ledger"]
        )

        pools = cache_pools(parts)
        scheduler = Scheduler(
            pools,
            parts.limits,
            measurements.stats,
            measurements.step_cost,
            measurements.policy,
        )
        namer = BlockNamer(parts.name_secret)
        beside = (
            each.attach(parts, scheduler, namer, self.to_cache.outbox) for each in parts.attachments
        )
        self.beside = [run for run in beside if run is not None]
        """Attachments' parts, which run beside the actors."""

        proposer = parts.proposer()
        # Where the target's process drafts, a round passes no draft actor.
        to_rounds = self.to_verifier if proposer is None else self.to_draft

        self.tokenizer = Tokenizer(
            self.to_tokenizer.inbox,
            self.to_cache.outbox,
            self.to_ledger.outbox,
            parts.text,
            TextLimits(
                parts.tokens_max,
                memory=memory_sizes(parts, pools),
                checks=parts.options.checks,
            ),
            parts.worker,
            parts.trace,
        )
        self.cache = Cache(
            inbox=self.to_cache.inbox,
            rounds=to_rounds.outbox,
            detokenizer=self.to_detokenizer.outbox,
            scheduler=scheduler,
            factory=SequenceFactory(
                pools,
                namer,
                parts.limits,
                parts.stop_token_ids,
                parts.tokens_max,
                parts.options.extensions(measurements.step_cost, parts.limits),
            ),
            trace=parts.trace,
        )
        self.drafter = Drafter(
            self.to_draft.inbox,
            self.to_verifier.outbox,
            proposer,
            parts.trace,
        )
        self.verifier = Verifier(
            self.to_verifier.inbox,
            self.to_cache.outbox,
            parts.target(),
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
    def ports(self) -> dict[str, Mailbox[Any]]:
        """Every mailbox, by the name of its reader."""
        ports = (
            self.to_tokenizer,
            self.to_cache,
            self.to_draft,
            self.to_verifier,
            self.to_detokenizer,
            self.to_ledger,
        )
        return dict(zip(MAILBOXES, ports, strict=True))

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
            # When idle, as a check walks over every block, and no request shall wait for that.
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
                async for message in self.to_ledger.inbox:
                    ledger.deliver(message)
        finally:
            # Senders see that this pipeline is over, and what they had stays theirs.
            for port in self.ports.values():
                port.close()
