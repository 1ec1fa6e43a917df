"""A request of the front, and the replica that computes it."""

from dataclasses import dataclass, field

from draftwerk.actors.requests.ledger import Entry
from draftwerk_cluster.replica_link import ReplicaLink
from draftwerk_cluster.replica_load import Reservation


@dataclass(slots=True, eq=False)
class PlacedRequest:
    """One live request, and where it is computed."""

    entry: Entry
    prompt_field: str
    """Its client's name for the prompt."""
    tokens: tuple[int, ...]
    """The prompt's tokens; empty where the replica has to refuse it."""
    pool: str = ""
    """Empty until it was first placed."""
    link: ReplicaLink | None = None
    reservation: Reservation | None = None
    attempts: int = 0
    """How often it was placed; each time under an id of its own."""
    excluded: set[str] = field(default_factory=set[str])
    """Replicas that turned it away since it was last placed."""
    unplaced_s: float = 0.0
    """Since when no replica has it."""

    @property
    def wire_id(self) -> str:
        """Its present replica's name for it."""
        return f"{self.entry.submit.request_id}~{self.attempts}"
