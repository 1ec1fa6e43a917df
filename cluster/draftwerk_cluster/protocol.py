"""What a door and a replica send each other: frozen structs, msgpack on the wire.

They have greeted before (`frame_stream`).

door                                   replica
  ──────── Hello ────────────────────────>
  <──────────────── Welcome ──────────────
  ──────── Placement, Cancel ────────────>
  <──── EventBatch, TurnedAway, LoadReport, Leaving
"""

import msgspec

from draftwerk.actors.events.client_events import Event
from draftwerk.actors.messages import Cancel, Submit
from draftwerk.actors.monitoring.snapshot import Snapshot
from draftwerk.api.shared.ports import ServedModel


class ReplicaInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that a door must know of a replica before it sends it anything."""

    replica_id: str
    """Unique in the cluster, and new for each process."""
    version: str
    """The version of draftwerk."""
    fingerprint: str
    """Digest of what its engine computes; equal ones give equal texts."""
    model: ServedModel
    tokens_max: int
    """Prompt and generated tokens of one choice."""
    requests_max: int
    """Requests that its settings let in at once."""
    block_size: int
    """Tokens in a block of its prefix cache."""
    name_secret: bytes
    """Keys the names of its cached blocks."""
    hands_over: bool = False
    """Whether others fetch them, and it those of others."""

    @property
    def pool(self) -> str:
        """The pool of replicas that may take over each other's requests."""
        return f"{self.version}/{self.fingerprint}"


class WireMessage(msgspec.Struct, frozen=True, tag=True, kw_only=True):
    """Base of all that is sent; the tag says which it is."""


# --- from the replica ----------------------------------------------------------------------------


class Welcome(WireMessage, frozen=True):
    """The first message of a replica."""

    info: ReplicaInfo


class EventBatch(WireMessage, frozen=True):
    """Events of many requests; those of one piece of text are in one batch."""

    events: tuple[tuple[str, tuple[Event, ...]], ...]
    """By request, in the order of each request's client."""


class TurnedAway(WireMessage, frozen=True):
    """A request was not taken: the replica is full, or it leaves."""

    request_id: str


class ReplicaWork(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Work that a replica has taken."""

    queued_tokens: float = 0.0
    """Prompt tokens of requests without a first token yet, those in its prefix cache left out."""
    decode_rows: int = 0
    """Texts that are being generated."""
    requests: int = 0
    wait_s: float = 0.0
    """How long a request would wait there now before its first token, at its latest pace."""


class LoadReport(WireMessage, frozen=True):
    """The replica's state; a door that gets none for a while counts it as lost."""

    received: int
    """Submissions of this door that the load includes."""
    work: ReplicaWork
    added: tuple[int, ...] = ()
    """Keys of blocks that came into its prefix cache since the last report."""
    dropped: tuple[int, ...] = ()
    """Keys of blocks that have left it since."""
    snapshot: Snapshot | None = None
    """Now and then."""


class Leaving(WireMessage, frozen=True):
    """The replica takes no more requests, and its streams are to go on elsewhere."""


FromReplica = Welcome | EventBatch | TurnedAway | LoadReport | Leaving


# --- from the door -------------------------------------------------------------------------------


class Hello(WireMessage, frozen=True):
    """The first message of a door, or of a command."""

    door_id: str


class Depart(WireMessage, frozen=True):
    """Asks the replica to leave: its streams go on elsewhere, and Serve starts another."""


class Placement(WireMessage, frozen=True):
    """A request for this replica."""

    submit: Submit
    missing_tokens: float
    """The tokens that the door expects to be computed before the first token."""


FromDoor = Hello | Placement | Cancel | Depart


def block_key(name: bytes) -> int:
    """Return a block's name in 64 bits: enough to route by, and small enough to send."""
    return int.from_bytes(name[:8], "little")
