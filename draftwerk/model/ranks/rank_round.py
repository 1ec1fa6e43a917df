"""A batch as rank 0 hands it to the other ranks: its arrays, each with type and shape."""

from dataclasses import fields

import msgspec
import numpy as np
import torch
from torch import Tensor

from draftwerk.model.batch.batch import Batch, Facts, facts_of, logit_count_of

SENT = ("facts", "logit_count", "states", "both_ways")
"""What is handed on beside tensors; states are of models that have no ranks."""
StoredArray = tuple[str, tuple[int, ...], bytes]
"""NumPy's name of the type, the shape, and the numbers."""


class RankRound(msgspec.Struct, frozen=True, array_like=True):
    """One forward pass."""

    arrays: dict[str, StoredArray]
    """The batch's tensors by the names of its fields."""
    facts: tuple[int, int, bool]
    logit_count: int
    on_scratch: bool
    """Whether it runs over pages that nothing relies on, as when steps are measured."""
    both_ways: bool
    """Whether windows reach both ways."""


def encoded(batch: Batch, *, on_scratch: bool) -> bytes:
    """Return the frame's payload for a batch on the CPU."""
    facts = facts_of(batch)
    arrays: dict[str, StoredArray] = {}
    for field in fields(batch):
        value = getattr(batch, field.name)
        if isinstance(value, Tensor):
            array = value.numpy()
            arrays[field.name] = (array.dtype.str, array.shape, array.tobytes())
        else:
            # Whatever a batch says beside its tensors is to reach every rank, or be refused.
            assert value is None or field.name in SENT, f"{field.name} is not handed on"
    known = (facts.row_max, facts.kv_max, facts.masked)
    count = logit_count_of(batch)
    return msgspec.msgpack.encode(RankRound(arrays, known, count, on_scratch, batch.both_ways))


def batch_of(round_: RankRound) -> Batch:
    """Return the batch that rank 0 has encoded."""
    tensors = {
        name: torch.from_numpy(np.frombuffer(data, kind).reshape(shape).copy())
        for name, (kind, shape, data) in round_.arrays.items()
    }
    facts, count = Facts(*round_.facts), round_.logit_count
    return Batch(
        **tensors,
        facts=facts,
        logit_count=count,
        states=(),
        layers=None,
        added=None,
        window=None,
        both_ways=round_.both_ways,
    )
