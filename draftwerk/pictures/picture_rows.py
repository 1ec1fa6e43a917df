"""PictureRows of pictures in a model process, in place of the embeddings of their placeholders.

A step comes with placeholders, and is done with the token that a picture has in the vocabulary: so
penalties, grammars and draft sources see nothing else. Which slots of the pages a round fills with
rows tells the forward pass where they go.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from msgspec import structs
from numpy.typing import NDArray
from torch import Tensor

from draftwerk.model.batch.added_rows import AddedRows
from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.process.built import Built
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.step.whole_prompts import Step
from draftwerk.pictures.placeholders import place_of
from draftwerk.pictures.positions import Stretch, base_at, rotary_positions, stretches
from draftwerk.speculative.parameters.bounds import PLACEHOLDER_MIN
from draftwerk.speculative.rounds import NewSequence, Proposal, Row, Verdict

OPEN_MAX = 64
"""Pictures whose rows are mapped at once."""

PictureRows = NDArray[np.float32]


class PictureRowOptions(msgspec.Struct, frozen=True):
    """Where a model process finds rows, and what stands for one in its vocabulary."""

    folder: str
    picture_id: int
    is_mutual: bool = False
    """Whether the rows of a picture see each other."""


def attach(built: Built, options: str) -> Built:
    """Return a model that reads placeholders; `options` are PictureRowOptions in JSON."""
    forward = built.parts.forward
    assert isinstance(forward, NativeForward | TorchForward), "pictures of a model without a place"
    size = built.parts.pages.block_size
    found = PicturedForward(forward, size, msgspec.json.decode(options, type=PictureRowOptions))
    return built._replace(parts=replace(built.parts, forward=found))


@dataclass(slots=True)
class KeptRows:
    """The rows of pictures in a folder, mapped as they are asked for."""

    folder: Path
    _open: OrderedDict[str, PictureRows] = field(default_factory=OrderedDict[str, PictureRows])

    def picture(self, placeholder: int) -> tuple[PictureRows, int]:
        """Return a picture's rows, and the number of one. Raises OSError where there are none."""
        key, number = place_of(placeholder)
        if (rows := self._open.get(key)) is None:
            rows = np.load(self.folder / key, mmap_mode="r")
            self._open[key] = rows
            if len(self._open) > OPEN_MAX:
                self._open.popitem(last=False)
        self._open.move_to_end(key)
        return rows, number


@dataclass(slots=True)
class KnownPictures:
    """The pictures of a sequence."""

    placeholders: Mapping[int, int]
    """By position."""
    stretches: list[Stretch] | None = None
    """Its positions; None before they are asked for."""


NO_PICTURES = KnownPictures({})


class PicturedForward:
    """A forward pass whose batches may have rows of pictures; else it is the one that it has."""

    def __init__(
        self, forward: NativeForward | TorchForward, block_size: int, options: PictureRowOptions
    ) -> None:
        self._forward, self._block_size = forward, block_size
        self._picture_id, self._is_mutual = options.picture_id, options.is_mutual
        self._kept = KeptRows(Path(options.folder))
        self._width = _width(forward)
        self._slots: dict[int, PictureRows] = {}
        """The rows of the round under way, by the slots that their keys and values go to."""
        self._bases: dict[int, int] = {}
        """Addends of the positions of tokens in and behind pictures, by slot likewise."""
        self._ends: dict[int, int] = {}
        """Where the picture of each row ends in its text, by slot, if its rows see each other."""
        self._known: dict[int, KnownPictures] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._forward, name)

    def __call__(self, batch: Batch, pages: Pages) -> Tensor:
        """Write the batch's K and V into the pages, return float32 logits [S, vocab]."""
        slots = batch.slots.tolist() if self._slots or self._bases else ()
        found = {at: self._slots[slot] for at, slot in enumerate(slots) if slot in self._slots}
        rows = torch.from_numpy(np.stack([*found.values()])) if found else torch.empty(0, 0)
        own, *deep = rows.split(self._width, 1)
        places = deep.pop() if deep and deep[-1].shape[1] < self._width else own[:, :0]
        if self._bases:
            bases = torch.tensor([self._bases.get(slot, 0) for slot in slots], dtype=torch.int32)
            batch = replace(
                batch, positions=rotary_positions(batch.positions, bases, [*found], places)
            )
        if not found:
            return self._forward(batch, pages)
        if self._is_mutual:
            batch = seeing_each_other(batch, {at: self._ends[slots[at]] for at in found})
        kind = _activations(self._forward)
        if deep:
            numbers = torch.full_like(batch.tokens, -1)
            numbers[list(found)] = torch.arange(len(found), dtype=numbers.dtype)
            added = AddedRows(torch.stack(deep).to(kind).float(), numbers)
            batch = replace(batch, added=added)
        hidden = _embedded(self._forward, batch.tokens)
        hidden[list(found)] = own.to(kind).to(hidden.dtype)
        return self._forward.run_stage(batch, pages, hidden)

    def around(self, step: Step) -> Step:
        """Return the step over placeholders; no sequence is known to it yet."""
        self._known.clear()

        def pictured(proposal: Proposal) -> Verdict:
            round_ = proposal.round
            self._slots.clear()
            self._bases.clear()
            self._ends.clear()
            for row in round_.rows:
                if origin := row.options.forked_from:
                    self._known[row.sequence_id] = self._known.get(origin, NO_PICTURES)
            for sequence_id in round_.finished_ids:
                self._known.pop(sequence_id, None)
            rows = tuple(map(self._taken, round_.rows))
            round_ = structs.replace(round_, rows=rows)
            return step(structs.replace(proposal, round=round_))

        return pictured

    def _taken(self, row: Row) -> Row:
        """Return a row without placeholders; those that it computes are looked up."""
        new = row.new_sequence
        if new is not None:
            self._known.pop(row.sequence_id, None)
            if max(new.tokens) >= PLACEHOLDER_MIN:
                known = KnownPictures(_placeholders(new.tokens))
                self._known[row.sequence_id] = known
                row = structs.replace(row, new_sequence=self._named(new, known.placeholders))
        known = self._known.get(row.sequence_id, NO_PICTURES)
        if known.placeholders:
            try:
                self._look_up(row, known)
            except (OSError, ValueError, IndexError):
                # The rows are gone: without blocks the row fails, and alone.
                return structs.replace(row, blocks=())
        return row

    def _named(self, new: NewSequence, known: Iterable[int]) -> NewSequence:
        tokens = list(new.tokens)
        for position in known:
            tokens[position] = self._picture_id
        return structs.replace(new, tokens=tuple(tokens))

    def _look_up(self, row: Row, known: KnownPictures) -> None:
        """Find the rows and positions of what a row may compute."""
        if known.stretches is None:
            known.stretches = stretches(known.placeholders, self._kept.picture, self._width)
        size = self._block_size
        # A row that continues another begins where that one ends.
        end = len(row.blocks) * size if row.options.continues else row.stop + row.draft_max
        for at in range(row.start, end if known.stretches else row.stop):
            slot = row.blocks[at // size] * size + at % size
            if at in known.placeholders:
                rows, number = self._kept.picture(known.placeholders[at])
                self._slots[slot], self._ends[slot] = rows[number], at + len(rows) - number
                if self._is_mutual and self._ends[slot] > row.stop:
                    raise ValueError("a row ends in a picture")
            if known.stretches:
                self._bases[slot] = base_at(known.stretches, at)


def seeing_each_other(batch: Batch, ends: Mapping[int, int]) -> Batch:
    """Return a batch in which some tokens see their row up to where their picture ends."""
    if (seen := batch.seen) is None:
        counts = batch.row_starts.diff().long()
        before = (batch.kv_lengths - batch.row_starts[1:]).repeat_interleave(counts)
        seen = before + torch.arange(1, len(batch.tokens) + 1, dtype=torch.int32)
    seen = seen.clone()
    seen[list(ends)] = torch.tensor([*ends.values()], dtype=torch.int32)
    changed = {"seen": seen, "both_ways": True}
    window = None if batch.window is None else replace(batch.window, **changed)
    return replace(batch, **changed, window=window)


def _placeholders(tokens: tuple[int, ...]) -> dict[int, int]:
    return {at: token for at, token in enumerate(tokens) if token >= PLACEHOLDER_MIN}


def _width(forward: NativeForward | TorchForward) -> int:
    if isinstance(forward, NativeForward):
        return forward.hidden_size
    return forward.config.hidden_size


def _embedded(forward: NativeForward | TorchForward, tokens: Tensor) -> Tensor:
    """Return the embeddings of tokens as the forward pass itself would have them."""
    if isinstance(forward, NativeForward):
        return forward.embedded(tokens)
    return forward.inputs.embedded(forward.weights.embedding, tokens).clone()


def _activations(forward: NativeForward | TorchForward) -> torch.dtype:
    """Return what the forward pass rounds its activations to."""
    if isinstance(forward, NativeForward):
        return torch.bfloat16 if forward.dtype == "bf16" else torch.float32
    return forward.weights.embedding.dtype
