"""A batch as rank 0 hands it to the other ranks: its arrays, end to end."""

import msgspec
import numpy as np
import torch

from draftwerk.model.batch.batch import Batch, Facts, facts_of

FIELDS = (
    "tokens",
    "positions",
    "slots",
    "row_starts",
    "kv_lengths",
    "block_tables",
    "ancestors",
    "outputs",
)


class RankRound(msgspec.Struct, frozen=True, array_like=True):
    """One forward pass."""

    arrays: tuple[bytes, ...]
    """Of the batch, in the order of `FIELDS`."""
    facts: tuple[int, int, bool]
    on_scratch: bool
    """Whether it runs over pages that nothing relies on, as when steps are measured."""


def encoded(batch: Batch, *, on_scratch: bool) -> bytes:
    """Return the frame's payload for a batch on the CPU."""
    facts = facts_of(batch)
    arrays = tuple(getattr(batch, name).cpu().numpy().tobytes() for name in FIELDS)
    known = (facts.row_max, facts.kv_max, facts.masked)
    return msgspec.msgpack.encode(RankRound(arrays, known, on_scratch))


def batch_of(round_: RankRound) -> Batch:
    """Return the batch that rank 0 has encoded."""
    found: dict[str, torch.Tensor] = {}
    for name, data in zip(FIELDS, round_.arrays, strict=True):
        kind = np.int64 if name == "ancestors" else np.int32
        found[name] = torch.from_numpy(np.frombuffer(data, kind).copy())
    rows = len(found["kv_lengths"])
    found["block_tables"] = found["block_tables"].view(rows, -1)
    return Batch(**found, facts=Facts(*round_.facts))
