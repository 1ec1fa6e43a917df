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

from draftwerk.model.batch.batch import Batch, Pages
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.process.built import Built
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.step.whole_prompts import Step
from draftwerk.pictures.placeholders import place_of
from draftwerk.speculative.protocol.rounds import NewSequence, Proposal, Row, Verdict
from draftwerk.speculative.sampling.bounds import PLACEHOLDER_MIN

OPEN_MAX = 64
"""Pictures whose rows are mapped at once."""

PictureRows = NDArray[np.float32]


class RowOptions(msgspec.Struct, frozen=True):
    """Where a model process finds rows, and what stands for one in its vocabulary."""

    folder: str
    picture_id: int


def attach(built: Built, options: str) -> Built:
    """Return a model that reads placeholders; `options` are RowOptions in JSON."""
    forward = built.parts.forward
    assert isinstance(forward, NativeForward | TorchForward), "pictures of a model without a place"
    size = built.parts.pages.block_size
    found = PicturedForward(forward, size, msgspec.json.decode(options, type=RowOptions))
    return built._replace(parts=replace(built.parts, forward=found))


@dataclass(slots=True)
class KeptRows:
    """The rows of pictures in a folder, mapped as they are asked for."""

    folder: Path
    width: int
    _open: OrderedDict[str, PictureRows] = field(default_factory=OrderedDict[str, PictureRows])

    def row(self, placeholder: int) -> PictureRows:
        """Return a row. Raises OSError or IndexError where there is none."""
        key, number = place_of(placeholder)
        if (rows := self._open.get(key)) is None:
            rows = np.memmap(self.folder / key, np.float32, "r").reshape(-1, self.width)
            self._open[key] = rows
            if len(self._open) > OPEN_MAX:
                self._open.popitem(last=False)
        self._open.move_to_end(key)
        return rows[number]


class PicturedForward:
    """A forward pass whose batches may have rows of pictures; else it is the one that it has."""

    def __init__(
        self, forward: NativeForward | TorchForward, block_size: int, options: RowOptions
    ) -> None:
        self._forward, self._block_size = forward, block_size
        self._picture_id = options.picture_id
        self._kept = KeptRows(Path(options.folder), _width(forward))
        self._slots: dict[int, PictureRows] = {}
        """The rows of the round under way, by the slots that their keys and values go to."""
        self._known: dict[int, dict[int, int]] = {}
        """The placeholders of each sequence, by position."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._forward, name)

    def __call__(self, batch: Batch, pages: Pages) -> Tensor:
        """Write the batch's K and V into the pages, return float32 logits [S, vocab]."""
        slots = batch.slots.tolist() if self._slots else ()
        found = {at: self._slots[slot] for at, slot in enumerate(slots) if slot in self._slots}
        if not found:
            return self._forward(batch, pages)
        rows = torch.from_numpy(np.stack([*found.values()]))
        hidden = _embedded(self._forward, batch.tokens)
        hidden[list(found)] = rows.to(_activations(self._forward)).to(hidden.dtype)
        return self._forward.run_stage(batch, pages, hidden)

    def around(self, step: Step) -> Step:
        """Return the step over placeholders; no sequence is known to it yet."""
        self._known.clear()

        def pictured(proposal: Proposal) -> Verdict:
            round_ = proposal.round
            self._slots.clear()
            forks = [row for row in round_.rows if row.branch is not None and row.branch.origin]
            for row in forks:
                assert row.branch is not None
                self._known[row.sequence_id] = self._known.get(row.branch.origin, {})
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
                self._known[row.sequence_id] = known = _placeholders(new.tokens)
                row = structs.replace(row, new_sequence=self._named(new, known))
        known = self._known.get(row.sequence_id)
        if known and row.start < row.stop:
            try:
                self._slots |= self._looked_up(row, known)
            except (OSError, ValueError, IndexError):
                # The rows are gone: without blocks the row fails, and alone.
                return structs.replace(row, blocks=())
        return row

    def _named(self, new: NewSequence, known: Iterable[int]) -> NewSequence:
        tokens = list(new.tokens)
        for position in known:
            tokens[position] = self._picture_id
        return structs.replace(new, tokens=tuple(tokens))

    def _looked_up(self, row: Row, known: Mapping[int, int]) -> dict[int, PictureRows]:
        size = self._block_size
        return {
            row.blocks[at // size] * size + at % size: self._kept.row(known[at])
            for at in range(row.start, row.stop)
            if at in known
        }


def _placeholders(tokens: tuple[int, ...]) -> dict[int, int]:
    return {at: token for at, token in enumerate(tokens) if token >= PLACEHOLDER_MIN}


def _width(forward: NativeForward | TorchForward) -> int:
    if isinstance(forward, NativeForward):
        return forward.hidden_size
    return forward.config.hidden_size


def _embedded(forward: NativeForward | TorchForward, tokens: Tensor) -> Tensor:
    """Return the embeddings of tokens as the forward pass itself would have them."""
    if isinstance(forward, NativeForward):
        assert forward.embedding is not None
        return forward.embedding[tokens.long()].float()
    return forward.inputs.embedded(forward.weights.embedding, tokens).clone()


def _activations(forward: NativeForward | TorchForward) -> torch.dtype:
    """Return what the forward pass rounds its activations to."""
    if isinstance(forward, NativeForward):
        return torch.bfloat16 if forward.dtype == "bf16" else torch.float32
    return forward.weights.embedding.dtype
