"""Rows of models that keep more than blocks of a text, or compute some texts in another way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from draftwerk.model.batch.batch_state import BatchState
from draftwerk.model.batch.builder import NO_STATE, BatchBuilder
from draftwerk.model.step.loaded_model import LoadedModel
from draftwerk.model.step.row_walk import RowPlan, RowWalk
from draftwerk.model.step.sequences import BadRow, CachedSequence
from draftwerk.model.step.target_runner import RowOutputs, StepOption
from draftwerk.speculative.rounds import Draft, Round, Row


class WindowRows(StepOption):
    """Has rows read and write blocks of their own in layers with windows."""

    def add_outputs(
        self, outputs: RowOutputs, row: Row, draft: Draft, sequence: CachedSequence
    ) -> None:
        outputs.columns["window"] = row.options.window_blocks
        outputs.tables = (row.options.window_blocks,)


@dataclass(slots=True)
class RecurrentRows(StepOption):
    """Has rows go on from states, which go along the accepted paths."""

    parts: LoadedModel
    _states: dict[int, BatchState] = field(default_factory=dict[int, BatchState])
    """By a row's number in its round."""

    def begin(self, round_: Round) -> None:
        self._states.clear()

    def add_outputs(
        self, outputs: RowOutputs, row: Row, draft: Draft, sequence: CachedSequence
    ) -> None:
        outputs.columns["state"] = row.options.state or NO_STATE

    def laid_out(self, builder: BatchBuilder, plan: RowPlan) -> None:
        if plan.row.options.state is not None:
            self._states[plan.number] = builder.states[-1]

    def follow(self, walks: Sequence[RowWalk]) -> None:
        moved = [walk for walk in walks if walk.path and walk.plan.number in self._states]
        self.parts.advance([(self._states[walk.plan.number], walk.path) for walk in moved])


@dataclass(slots=True, frozen=True)
class AdapterRows(StepOption):
    """Has rows computed with the adapters of their sequences."""

    numbers: Mapping[str, int]
    """The numbers of the model's, by their digests."""

    def add_outputs(
        self, outputs: RowOutputs, row: Row, draft: Draft, sequence: CachedSequence
    ) -> None:
        adapter = "" if sequence.new_sequence is None else sequence.new_sequence.options.adapter
        if not adapter:
            return
        if adapter not in self.numbers:
            raise BadRow(f"the adapter {adapter} is not loaded")
        outputs.columns["adapter"] = self.numbers[adapter]
