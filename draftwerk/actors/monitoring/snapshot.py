"""The engine's state and counters at one moment."""

import msgspec

from draftwerk.actors.monitoring.device_clock import GAPS_S
from draftwerk.actors.monitoring.histogram import Histogram


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """For /ready and /metrics; counters count since start."""

    running: int = 0
    waiting: int = 0
    blocks_total: int = 0
    blocks_used: int = 0
    blocks_cached: int = 0
    prefix_queries: int = 0
    """Prompt tokens looked up in the prefix index."""
    prefix_hits: int = 0
    prompt_tokens: int = 0
    prefilled_apart: int = 0
    """Prompt tokens that prefill processes computed."""
    blocks_returned: int = 0
    """Of preempted sequences, loaded from tier two."""
    generated_tokens: int = 0
    overrun_tokens: int = 0
    """Decided in rounds that were planned before their texts had ended, and dropped."""
    preemptions: int = 0
    rounds: int = 0
    device_ms: float = 0.0
    """Time that the target's device spent in steps."""
    device_busy_s: dict[str, float] = {}
    """Seconds that it was computing, by stage of a step."""
    device_gaps: Histogram = Histogram(GAPS_S)
    """How long it waited between steps while there was work, in seconds."""
    drafts: int = 0
    """Rows that carried at least one drafted token."""
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_by_position: tuple[int, ...] = ()
    accepted_by_source: dict[str, int] = {}
    drafts_by_source: dict[str, int] = {}
    """Rows in whose draft a source had a part."""
    drafted_by_source: dict[str, int] = {}
    recomputed_tokens: int = 0
    """Computed a second time, after a preemption, a restart or a recovery."""
    restarts: int = 0
    recoveries: int = 0
    """Model processes replaced while every sequence and its KV stayed."""
    processes: dict[str, int | None] = {}
    """Ids of the model processes by what they are for; None for one that is away."""
    store: dict[str, float] = {}
    """Counters of tier two; empty where there is none."""
    request_stages: dict[str, Histogram] = {}
    """Seconds of each stage of finished choices, by stage."""
    mailbox_depths: dict[str, int] = {}
    mailbox_waits: dict[str, Histogram] = {}
    """How long messages were in each mailbox, in seconds."""
    progress_age_s: float = 0.0
    """Seconds since the last committed round while work is pending; 0 when idle."""
    actor_ages_s: dict[str, float] = {}
    """How long each actor has been at the work it is doing; 0 for one that waits."""
    target_up: bool = True
    """Whether the target's device is there: not while it is started again."""
    draft_up: bool | None = None
    """Whether the draft model's device is there; None where there is no draft model."""
    draining: bool = False
    audits: dict[str, int] = {}
    """Finished requests decoded again, by outcome: equal, token, length, failed."""
    moves: dict[str, int] = {}
    """Streams that went on at another replica, by why; empty without replicas."""
    replicas: dict[str, "Snapshot"] = {}
    """Of a cluster's door: what the sums above were made from."""
    open_replicas: tuple[str, ...] = ()
    """Those of them that new requests go to."""
