"""The costs of a sequence, and its turn in the queue."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from draftwerk.speculative.rounds import Decision, Draft


@dataclass(slots=True)
class Tally:
    """The costs of a sequence so far; counts of tokens unless stated otherwise."""

    cached: int | None = None
    """Prompt tokens found in the prefix cache at first admission; None before it."""
    steps: int = 0
    drafted: int = 0
    accepted_histogram: list[int] = field(default_factory=list[int])
    predicted_accepted: int = 0
    predicted_rejected: int = 0
    preemptions: int = 0
    counted: bool = False
    """Whether it was counted as entering: here, or in actors that failed since."""
    depth: int = 0
    """Tokens of the longest text, where the sequence is a group of them."""
    further: dict[str, Any] = field(default_factory=dict[str, Any])
    """Counts of options that its client is told, by field of `FurtherCounts`."""

    def count(self, decision: Decision, draft: Draft) -> None:
        """Add one sampling step."""
        accepted = len(decision.path)
        self.steps += 1
        self.drafted += len(draft.tokens)
        self.accepted_histogram += [0] * (accepted + 1 - len(self.accepted_histogram))
        self.accepted_histogram[accepted] += 1
        hits = sum(draft.sources[node] == "prediction" for node in decision.path)
        self.predicted_accepted += hits
        self.predicted_rejected += draft.sources.count("prediction") - hits


class AwaitedPrefix(NamedTuple):
    """Tokens that two prompts begin with."""

    reader: Any
    """The sequence that is being read."""
    length: int


@dataclass(slots=True)
class QueueTurn:
    """When a sequence that waits may go before others."""

    found: int = 0
    """The number of its tokens that were in the prefix cache when it was looked."""
    passing: bool = False
    """Whether it runs though one before it finds no room, for which it gives way."""
    passes: int = 0
    """How often it was."""
    passed: int = 0
    """How many others were while it was waiting."""
    awaited: AwaitedPrefix | None = None
    """The prompt that it waits for, if one that is being read begins like its own."""


def origins(decision: Decision, draft: Draft) -> tuple[str, ...]:
    """Name where each decided token came from: a source, or the target itself.

    The target's own token is "corrected" where a draft stood in its place, "bonus" behind a fully
    accepted draft, and "target" where nothing was drafted.
    """
    if not decision.tokens:
        return ()
    if not draft.tokens:
        return ("target",)
    last = decision.path[-1] if decision.path else -1
    # Something stood behind the last accepted node, or behind the known tokens, and was wrong.
    own = "corrected" if last in draft.parents else "bonus"
    return (*(draft.sources[node] for node in decision.path), own)
