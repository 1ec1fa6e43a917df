"""Models whose tokens see all of their text, those behind them too (`is_causal: false`).

A prompt may be read in several rows. The one that ends it, which alone pools, is computed from the
beginning: each token sees as many slots as the whole prompt has. What rows before it have written
is written again, and read by nobody else: such prompts share no blocks.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from msgspec import structs
from torch import Tensor

from draftwerk.model.batch.batch import Batch, Facts, Pages
from draftwerk.model.batch.option_forwards import StatesForward
from draftwerk.speculative.rounds import Decision, Proposal, Row, Verdict

Step = Callable[[Proposal], Verdict]
View = Callable[[Batch], Batch]
NO_TEXT = "this model makes vectors of texts, and generates none"


class WholePrompts:
    """A forward pass over a batch in which each token of a row sees all of the row."""

    def __init__(self, forward: StatesForward, view: View) -> None:
        self._forward = forward
        self._view = view

    def __call__(self, batch: Batch, pages: Pages) -> Tensor:
        """Return the logits; there are no trees of drafts."""
        return self._forward(self._view(batch), pages)

    def around(self, step: Step) -> Step:
        """Return a step that computes prompts from their beginning."""
        return begun_again(step)

    @property
    def states(self) -> Tensor | None:
        """Hidden states of the outputs of the latest call."""
        return self._forward.states


def seeing(forward: StatesForward, sees_all: bool, view: View) -> StatesForward:
    """Return a forward pass whose tokens see all of their text if the model's do."""
    return WholePrompts(forward, view) if sees_all else forward


def all_seen(batch: Batch) -> Batch:
    """Return a batch whose tokens each see as many slots as their row has."""
    return replace(batch, seen=batch.kv_lengths[_rows(batch)], both_ways=True)


def one_by_one(batch: Batch) -> Batch:
    """Return the same as rows of one token each, behind all others of its prompt.

    The kernels take tokens of a row in causal order. Keys and values of a layer are all written
    before any is read.
    """
    rows, count = _rows(batch), len(batch.tokens)
    return replace(
        batch,
        row_starts=torch.arange(count + 1, dtype=batch.row_starts.dtype),
        kv_lengths=batch.kv_lengths[rows],
        block_tables=batch.block_tables[rows],
        adapters=None if batch.adapters is None else batch.adapters[rows],
        facts=Facts(1, int(batch.kv_lengths.max()), masked=False),
    )


def _rows(batch: Batch) -> Tensor:
    """Return the number of each token's row [T]."""
    counts = batch.row_starts.diff().long()
    return torch.repeat_interleave(torch.arange(len(counts)), counts)


def begun_again(step: Step) -> Step:
    """Return a step that computes prompts from their beginning, and samples nothing."""

    def whole(proposal: Proposal) -> Verdict:
        round_ = proposal.round
        rows = tuple(map(_from_start, round_.rows))
        verdict = step(structs.replace(proposal, round=structs.replace(round_, rows=rows)))
        decisions = zip(round_.rows, verdict.decisions, strict=True)
        answers = (Decision(error=NO_TEXT) if row.samples else each for row, each in decisions)
        return structs.replace(verdict, decisions=tuple(answers))

    return whole


def _from_start(row: Row) -> Row:
    return structs.replace(row, start=0) if row.options.pools else row
