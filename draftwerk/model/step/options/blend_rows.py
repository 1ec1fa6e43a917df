"""Rows of blended prompts: copies of segments, the probe of their lowest layers, and the layout."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from draftwerk.model.batch.batch import Pages
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.step.loaded_model import LoadedModel
from draftwerk.model.step.row_walk import RowPlan
from draftwerk.model.step.sequences import BadRow, CachedSequence
from draftwerk.model.step.target_runner import StepOption, StepProgress
from draftwerk.speculative.options.blend.rules import CHECK_LAYER
from draftwerk.speculative.rounds import NO_DRAFT, Decision, Row
from draftwerk.speculative.row_parts.decision_options import DecisionOptions
from draftwerk.speculative.row_parts.row_blend import RowBlend


@dataclass(slots=True, frozen=True)
class BlendRows(StepOption):
    """Copies segments to where they are reused, and computes what a rule names again."""

    parts: LoadedModel
    clock: Callable[[], float]

    def lay_out(self, builder: BatchBuilder, row: Row, sequence: CachedSequence) -> int | None:
        if row.options.blend is None:
            return None
        check_blend(row, sequence, self.parts)
        for read in row.options.blend.reads:
            tokens = read.tokens(sequence.tokens)
            builder.add(tokens, read.start, read.blocks, NO_DRAFT, samples=False)
        places = list(row.options.blend.places)
        tokens = [sequence.tokens[place] for place in places]
        return builder.add_places(tokens, places, row.blocks, row.samples)

    def prepare(self, step: StepProgress) -> None:
        plans = [plan for plan in step.rows if plan.row.options.blend is not None]
        if not plans:
            return
        begun = self.clock()
        copy_segments(self.parts, plans)
        for number, deviations in probe_rows(self.parts, plans).items():
            step.decisions[number] = Decision(options=DecisionOptions(deviations=deviations))
        step.aside_s += self.clock() - begun


def copy_segments(parts: LoadedModel, plans: Sequence[RowPlan]) -> None:
    """Copy slots of segments to the rows that they belong to."""
    for plan in plans:
        assert plan.row.options.blend is not None and parts.turn_slots is not None
        size = parts.pages.block_size
        for copy in plan.row.options.blend.copies:
            sources = _slots(copy.blocks, copy.start, copy.stop, size)
            targets = _slots(plan.row.blocks, copy.to, copy.to + copy.stop - copy.start, size)
            parts.turn_slots(parts.pages, sources, targets, copy.turn)


def probe_rows(parts: LoadedModel, plans: Sequence[RowPlan]) -> dict[int, tuple[float, ...]]:
    """Compute the lowest layers of the rows that probe; return their deviations by row number.

    The copies must have been made by the same round: then it may be done twice.
    """
    probing = [
        plan
        for plan in plans
        if plan.row.options.blend is not None
        and plan.row.options.blend.probes
        and plan.row.stop > plan.row.start
    ]
    if not probing:
        return {}
    builder = BatchBuilder(parts.pages.block_size)
    for plan in probing:
        row, tokens = plan.row, plan.sequence.tokens[plan.row.start : plan.row.stop]
        builder.add(tokens, row.start, row.blocks, NO_DRAFT, samples=False)
    batch = replace(builder.batch(torch.device("cpu")), layers=CHECK_LAYER + 1)
    before = _checked(parts.pages, batch.slots)
    parts.forward(batch, parts.pages)
    distances = np.square(_checked(parts.pages, batch.slots) - before).sum(axis=1)
    found: dict[int, tuple[float, ...]] = {}
    for first, plan in zip(builder.starts, probing, strict=False):
        assert plan.row.options.blend is not None
        copied = _copied(plan.row.options.blend)
        of_row = distances[first : first + plan.row.stop - plan.row.start].tolist()
        places = range(plan.row.start, plan.row.stop)
        found[plan.number] = tuple(
            distance if place in copied else 0.0
            for place, distance in zip(places, of_row, strict=True)
        )
    return found


def check_blend(row: Row, sequence: CachedSequence, parts: LoadedModel) -> None:
    """Raise BadRow unless what a row copies, reads and computes is in range."""
    blend = row.options.blend
    assert blend is not None
    if parts.turn_slots is None:
        raise BadRow("segments cannot be reused on this device")
    size, known = parts.pages.block_size, len(sequence.tokens)
    for read in blend.reads:
        if not 0 <= read.start < read.stop <= len(read.blocks) * size:
            raise BadRow("a segment's blocks do not hold it")
        if not 0 <= read.beginning <= read.at <= known - (read.stop - read.beginning):
            raise BadRow("a segment is outside the known tokens")
    for copy in blend.copies:
        if not 0 <= copy.start < copy.stop <= len(copy.blocks) * size:
            raise BadRow("a segment's blocks do not hold what is copied")
        if not row.start <= copy.to <= row.stop - (copy.stop - copy.start):
            raise BadRow("a segment is copied beyond its row")
    inside = all(row.start <= place < row.stop for place in blend.places)
    ascending = all(a < b for a, b in zip(blend.places, blend.places[1:], strict=False))
    if not (inside and ascending):
        raise BadRow("places are outside their row or out of order")
    if row.samples and (not blend.places or blend.places[-1] != known - 1):
        raise BadRow("a sampling row does not compute its last token")
    for blocks in (*(each.blocks for each in blend.reads), *(each.blocks for each in blend.copies)):
        if blocks and not 0 <= min(blocks) <= max(blocks) < parts.pages.keys.shape[1]:
            raise BadRow("a block is outside the pages")


def _copied(blend: RowBlend) -> set[int]:
    return {
        place for copy in blend.copies for place in range(copy.to, copy.to + copy.stop - copy.start)
    }


def _slots(blocks: tuple[int, ...], start: int, stop: int, size: int) -> list[int]:
    return [blocks[at // size] * size + at % size for at in range(start, stop)]


def _checked(pages: Pages, slots: Tensor) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    """Return keys and values of the check layer, [slots, numbers] in float32."""
    parts = [
        part[CHECK_LAYER].flatten(0, 1)[slots.long()].flatten(1).float()
        for part in (pages.keys, pages.values)
    ]
    return torch.cat(parts, dim=1).numpy()
