"""The parts of an engine, and what it measures across restarts."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, ClassVar

from draftwerk.actors.devices.device import Device, ThreadWorker, Worker
from draftwerk.actors.devices.restarts import RestartLimit
from draftwerk.actors.mailbox import Outbox
from draftwerk.actors.messages import CacheMessage
from draftwerk.actors.monitoring.device_clock import DeviceClock
from draftwerk.actors.monitoring.histogram import WAITS_S, Histogram
from draftwerk.actors.monitoring.request_stages import RequestStages
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.actors.monitoring.trace import Trace
from draftwerk.actors.requests.audit import Audit
from draftwerk.actors.texts.text_tools import TextTools
from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import CachePools, KindSizes
from draftwerk.cache.tables import BlockNamer
from draftwerk.speculative.costs.roofline import Roofline
from draftwerk.speculative.costs.step_cost import MeasuredStep, StepCost
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.load.size_limits import MemorySizes
from draftwerk.speculative.load.stats import SchedulerStats
from draftwerk.speculative.opening import OptionSet
from draftwerk.speculative.rounds import Proposal, Verdict
from draftwerk.speculative.scheduler import PolicyFactory, RoundLimits, Scheduler

MAILBOXES = ("tokenizer", "cache", "draft", "verifier", "detokenizer", "ledger")
"""By the name of the reader, in the order the data flows."""
DEFAULT_LIMITS = RoundLimits()


def text_proposer() -> Proposer:
    """Return a proposer that drafts from each request's own text."""
    return Proposer(("ngram",))


@dataclass(slots=True, frozen=True, kw_only=True)
class EngineParts:
    """The parts of an engine; devices come from factories, so that they can be made again."""

    text: TextTools
    target: Callable[[], Device[Proposal, Verdict]]
    block_count: int
    block_size: int
    kinds: tuple[KindSizes, ...] = ()
    """The kinds of memory that the model's layers have beside blocks."""
    context_max: int
    """Tokens that the model can attend to."""
    stop_token_ids: tuple[int, ...]
    limits: RoundLimits = DEFAULT_LIMITS
    proposer: Callable[[], Proposer | None] = text_proposer
    """The draft sources that the engine runs; with none nothing is drafted.

    Instead of a proposer None, where the target's process runs them: as it must to run ahead.
    """
    options: OptionSet
    """The options that requests may ask for; one that is not here is not asked for."""
    requests_max: int = 256
    name_secret: bytes = b""
    """Keys the names of cached blocks."""
    step_costs: tuple[MeasuredStep, ...] = ()
    """Measured steps of the target."""
    roofline: Roofline | None = None
    """The target's on its device, where that was measured."""
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


def cache_pools(parts: EngineParts) -> CachePools:
    """Return empty pools of the cache: blocks, and what a model's layers need besides."""
    # Rows under way of one sequence: run-ahead plans one behind another, and each has its states.
    count, size, rows = parts.block_count, parts.block_size, 1 + parts.limits.run_ahead
    kinds = (sizes.kind(count, size, rows) for sizes in parts.kinds)
    pools = tuple(kind for kind in kinds if kind is not None)
    return CachePools(BlockPool(count, size), pools)


@dataclass(slots=True)
class Measurements:
    """Counters and what is learnt, across all pipelines."""

    step_cost: StepCost
    policy: PolicyFactory
    stats: SchedulerStats = field(default_factory=SchedulerStats)
    waits: dict[str, Histogram] = field(
        default_factory=lambda: {name: Histogram(WAITS_S) for name in MAILBOXES}
    )
    device_clock: DeviceClock = field(default_factory=DeviceClock)
    stages: RequestStages = field(default_factory=RequestStages)


def memory_sizes(parts: EngineParts, pools: CachePools) -> MemorySizes:
    """Return what an engine has for texts."""
    fields: dict[str, Any] = {}
    for kind in pools.kinds:
        fields.update(kind.sizes(parts.tokens_max))
    blocks = parts.block_count, parts.block_size
    return MemorySizes(blocks=blocks, round_max=parts.limits.tokens_max, **fields)
