"""A prompt whose segments are reused: what its rows do, and what their verdicts mean."""

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from draftwerk.cache.blocks import BlockPool
from draftwerk.cache.memory import SequenceMemory
from draftwerk.speculative.options.blend.blend_step import BlendStep
from draftwerk.speculative.options.blend.blending import Blending
from draftwerk.speculative.options.extended_sequence import ExtendedSequence
from draftwerk.speculative.rounds import Row, VerifiedRow
from draftwerk.speculative.row_parts.plain import with_options
from draftwerk.speculative.sequence import RoundPlan, Taken


@dataclass(eq=False)
class BlendedPrompt(ExtendedSequence):
    """A sequence with segments; it may be of another kind besides."""

    _: KW_ONLY
    blending: Blending
    in_line: ClassVar = False

    @property
    def is_foreseen(self) -> bool:
        """What its next row is depends on the deviations that come with the verdict."""
        return super().is_foreseen and self.computed >= self.blending.stop

    def looked_for(self) -> Iterator[tuple[int, ...]]:
        tokens, blending = tuple(self.reusable), self.blending
        if not blending.is_found:
            yield tokens[: blending.start]
            for part in blending.parts:
                yield tuple(part.text(tokens))

    def memories(self) -> list[SequenceMemory]:
        return [*super().memories(), *self.blending.memories()]

    def entry_blocks(self, pool: BlockPool) -> int:
        return super().entry_blocks(pool) + pool.blocks_for(self.blending.room)

    def enter(self) -> bool:
        """Find its prefix: a part of the blend is of no use."""
        found = self.memory.enter(self.reusable)
        if found is None:
            return False
        found = self.blending.begin(self.memory, found)
        if self.blending.is_found:
            self._count()
        if not self.memory.reserve(len(self.tokens)):
            return False
        self.computed = self.planned = found
        return True

    def leave(self) -> list[int]:
        forgotten = super().leave()
        self.blending.reset()
        return forgotten

    def forget(self) -> None:
        super().forget()
        for memory in self.blending.memories():
            memory.forget()

    def check(self) -> None:
        super().check()
        self.blending.check()

    def rows(self, plan: RoundPlan, count_max: int, draft_max: int) -> list[Row]:
        """Return a row of the blend, whose part of a segment is added whole, or one of the text."""
        if not self.blending.covers(self.planned):
            if self.planned < self.blending.start:
                count_max = min(count_max, self.blending.start - self.planned)
            return super().rows(plan, count_max, draft_max)
        step, planned = self._step(plan), self.planned
        row = None if step is None else self.row(plan, step.start, step.stop, 0)
        if step is None or row is None:
            return []
        if step.row.probes:  # which computes nothing that lasts
            self.planned = planned
        return [with_options(row, blend=step.row)]

    def _step(self, plan: RoundPlan) -> BlendStep | None:
        """Return the next step, or None where no blocks can be had for it."""
        end = self.planned + self.unread
        step = self.blending.step(self.tokens, self.planned, end, plan.tokens_left)
        if step is None:
            pool = plan.pools.blocks
            need = pool.blocks_for(self.blending.missing())
            if plan.make_room(self, lambda: pool.available >= need):
                step = self.blending.step(self.tokens, self.planned, end, plan.tokens_left)
        return step

    def take(self, parts: list[VerifiedRow], now_s: float) -> Taken:
        row, decision, _ = parts[0]
        if row.options.blend is not None:
            self.blending.commit(
                self.tokens, row.options.blend, row.stop, decision.options.deviations
            )
            if row.options.blend.probes:
                return Taken()
            if row.stop >= self.blending.stop:
                self._count()
        return super().take(parts, now_s)

    def _count(self) -> None:
        """Tell how the prompt's segments were computed."""
        canonical = sum(part.length for part in self.blending.parts)
        declared = sum(stop - start for start, stop in self.blending.blend.spans)
        kept = canonical - self.blending.repaired
        segments = tuple(map(tuple, self.blending.uses()))
        self.tally.further.update(
            blended_count=kept, repaired_count=declared - kept, segments=segments
        )
