"""What rows have in a batch of models that keep more than blocks, by the options that bring it."""

import pytest

from draftwerk.cache.kinds.recurrent_states import RowState
from draftwerk.model.batch.builder import NO_STATE
from draftwerk.model.step.options.layer_memory import AdapterRows, RecurrentRows, WindowRows
from draftwerk.model.step.sequences import BadRow, CachedSequence
from draftwerk.model.step.target_runner import RowOutputs, StepOption
from draftwerk.speculative.rounds import NO_DRAFT, NewSequence, Row
from draftwerk.speculative.row_parts.plain import with_options
from draftwerk.speculative.row_parts.sequence_options import SequenceOptions
from draftwerk.speculative.sampling import Sampling
from tests.support.rounds import make_row

ROW = make_row(0, 1, blocks=(3,))


def added(option: StepOption, adapter: str = "", row: Row = ROW) -> RowOutputs:
    begun = NewSequence((5,), 1, Sampling(), options=SequenceOptions(adapter=adapter))
    outputs = RowOutputs()
    option.add_outputs(outputs, row, NO_DRAFT, CachedSequence([5], 1, Sampling(), begun))
    return outputs


def test_a_row_has_the_number_of_its_adapter() -> None:
    assert added(AdapterRows({"digest": 4}), "digest").columns == {"adapter": 4}
    assert added(AdapterRows({"digest": 4})).columns == {}


def test_a_row_of_an_adapter_that_is_not_loaded_fails() -> None:
    with pytest.raises(BadRow, match="the adapter other is not loaded"):
        added(AdapterRows({"digest": 4}), "other")


def test_a_row_writes_by_the_table_of_its_windows_as_well() -> None:
    outputs = added(WindowRows(), row=with_options(ROW, window_blocks=(9,)))
    assert (outputs.columns, outputs.tables) == ({"window": (9,)}, ((9,),))


def test_a_row_goes_on_from_its_state() -> None:
    state = RowState(1, 2)
    option = RecurrentRows(parts=None)  # type: ignore[arg-type]
    assert added(option, row=with_options(ROW, state=state)).columns == {"state": state}
    assert added(option).columns == {"state": NO_STATE}
