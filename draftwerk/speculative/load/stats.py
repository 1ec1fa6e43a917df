"""The contents and counters of a scheduler."""

from copy import deepcopy

import msgspec

from draftwerk.speculative.load.tally import Tally
from draftwerk.speculative.rounds import Decision, Draft
from draftwerk.speculative.row_parts.step_report import StepReport


class SchedulerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Sequences and blocks of a scheduler now."""

    running: int = 0
    waiting: int = 0
    blocks_total: int = 0
    blocks_used: int = 0
    blocks_cached: int = 0
    round_tokens: int = 0
    """The tokens of the largest round: chosen at start, and revised in service."""


class SchedulerStats(msgspec.Struct, kw_only=True):
    """Counters since start."""

    rounds: int = 0
    device_ms: float = 0.0
    """Time that the target's device spent in steps."""
    preemptions: int = 0
    prompt_tokens: int = 0
    """The prompt tokens of each request, once however many choices it has."""
    prefix_hits: int = 0
    """Found in the prefix cache."""
    recomputed_tokens: int = 0
    """Computed a second time, after a preemption, a restart or a recovery."""
    blocks_returned: int = 0
    """The blocks of preempted sequences, loaded from a second tier instead of computed again."""
    generated_tokens: int = 0
    overrun_tokens: int = 0
    """Decided in a round that was planned before its text had ended, and dropped."""
    drafts: int = 0
    """Rows that carried at least one drafted token."""
    draft_tokens: int = 0
    accepted_tokens: int = 0
    accepted_by_position: list[int] = msgspec.field(default_factory=list[int])
    drafts_by_source: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    """Rows in whose draft a source had a part."""
    drafted_by_source: dict[str, int] = msgspec.field(default_factory=dict[str, int])
    accepted_by_source: dict[str, int] = msgspec.field(default_factory=dict[str, int])

    def copy(self) -> "SchedulerStats":
        return deepcopy(self)

    def count_admission(
        self, tally: Tally, prompt: int, known: int, cached: int, reads: bool
    ) -> None:
        """Add a sequence that enters: its client's prompt once, in the words of usage.

        It has so many known tokens, the prompt's among them, of which so many were cached; `reads`
        says that it is the one of its request that reads the prompt.
        """
        if tally.cached is None:
            tally.cached = min(cached, prompt)
        if tally.counted:
            self.recomputed_tokens += known - cached
        elif reads:
            self.prompt_tokens += prompt
            self.prefix_hits += tally.cached
        tally.counted = True

    def count_step(self, report: StepReport) -> None:
        """Add what a step cost."""
        self.device_ms += report.device_ms + report.head_ms

    def count(self, decision: Decision, draft: Draft) -> None:
        """Add what became of one row's draft."""
        if not draft.tokens:
            return
        self.drafts += 1
        self.draft_tokens += len(draft.tokens)
        self.accepted_tokens += len(decision.path)
        accepted = len(decision.path)
        self.accepted_by_position += [0] * (accepted - len(self.accepted_by_position))
        for position in range(accepted):
            self.accepted_by_position[position] += 1
        for source in sorted(set(draft.sources)):
            self.drafts_by_source[source] = self.drafts_by_source.get(source, 0) + 1
        for source in draft.sources:
            self.drafted_by_source[source] = self.drafted_by_source.get(source, 0) + 1
        for node in decision.path:
            source = draft.sources[node]
            self.accepted_by_source[source] = self.accepted_by_source.get(source, 0) + 1
