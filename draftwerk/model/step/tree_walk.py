"""The way from a row's last known token down its draft, one target token at a time."""

from dataclasses import dataclass, field

from draftwerk.model.step.row_plan import RowPlan


@dataclass(slots=True)
class TreeWalk:
    """The way down one row's tree: where it is, and what it has committed."""

    plan: RowPlan
    children: dict[tuple[int, int], int] = field(init=False)
    """The child of (node, token)."""
    node: int = -1
    """The last accepted one; -1 is the last known token."""
    tokens: list[int] = field(default_factory=list)
    """Committed: those of the path, and one more where the draft ends or is wrong."""
    path: list[int] = field(default_factory=list)
    error: str = ""
    """Why the row failed on the way, in words for the client."""

    def __post_init__(self) -> None:
        self.children = self.plan.draft.children()

    @property
    def logits_row(self) -> int:
        """The row of logits where the walk is."""
        return self.plan.first + self.node + 1

    @property
    def goes_on(self) -> bool:
        """Whether there will be another token after those committed."""
        stops = self.plan.sequence.sampling.stop_token_ids
        return bool(self.tokens) and self.tokens[-1] not in stops

    def advance(self, token: int) -> bool:
        """Commit the target's token; return whether it was drafted, so that the walk goes on."""
        child = self.children.get((self.node, token))
        self.tokens.append(token)
        if child is None or token in self.plan.sequence.sampling.stop_token_ids:
            return False
        self.path.append(child)
        self.node = child
        return True
