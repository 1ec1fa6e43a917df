"""A prompt is what one user brings: one turn, or a conversation."""

from typing import Protocol

from msgspec import Struct


class WorkloadPrompt(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One conversation's worth of questions; later turns carry the server's own answers.

    `output_tokens` overrides the run's limit, `at_s` is the arrival in a recorded trace, and
    `counts_from` marks a prompt whose right answer is the integers from there upward.
    """

    turns: tuple[str, ...]
    category: str = ""
    output_tokens: int | None = None
    at_s: float | None = None
    token_ids: tuple[int, ...] | None = None
    counts_from: int | None = None


class Workload(Protocol):
    """An endless supply of prompts: the i-th is a pure function of the seed and i."""

    def prompt(self, index: int) -> WorkloadPrompt: ...

    @property
    def distinct(self) -> int | None:
        """How many prompts differ from each other; None if each seed makes others."""
        ...

    @property
    def timestamps_s(self) -> list[float] | None:
        """Arrival times if this is a recorded trace."""
        ...
