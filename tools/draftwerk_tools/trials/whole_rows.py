"""Rows of texts that each have blocks of their own, one behind the other, as a batch."""

from collections.abc import Sequence

import torch
from torch import Tensor

from draftwerk.model.batch.batch import Batch


def whole_rows(
    rows: Sequence[Sequence[int]],
    begins: Sequence[int],
    outputs: int,
    row_slots: int,
    block_size: int,
) -> Batch:
    """Return a batch of rows' tokens behind the `begins` tokens of each that are in the pages.

    A row has `row_slots` slots, which are whole blocks; its last `outputs` tokens have logits.
    """

    def ints(values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int32)

    ends = [begin + len(row) for begin, row in zip(begins, rows, strict=True)]
    places = [list(range(*span)) for span in zip(begins, ends, strict=True)]
    starts = [0]
    for row in rows:
        starts.append(starts[-1] + len(row))
    return Batch(
        tokens=ints([token for row in rows for token in row]),
        positions=ints([place for row in places for place in row]),
        slots=ints([at * row_slots + place for at, row in enumerate(places) for place in row]),
        row_starts=ints(starts),
        kv_lengths=ints(ends),
        block_tables=ints([*range(len(rows) * row_slots // block_size)]).view(len(rows), -1),
        ancestors=torch.full((starts[-1],), -1),
        outputs=ints([at for end in starts[1:] for at in range(end - outputs, end)]),
    )
