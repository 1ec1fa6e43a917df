"""Stacked experts are each expert's rows, under the names of the others."""

from pathlib import Path

from draftwerk.model.checkpoint.architectures import ARCHITECTURES
from draftwerk.model.checkpoint.files.shards import StoredTensor
from draftwerk.model.checkpoint.stacked_experts import unstacked

NAME = "model.layers.0.mlp.experts.{}_proj.weight"
STORED = {
    NAME.format("gate_up"): StoredTensor(Path("x"), "F32", (3, 8, 4)),
    NAME.format("down"): StoredTensor(Path("x"), "F32", (3, 4, 4)),
    "lm_head.weight": StoredTensor(Path("x"), "F32", (9, 4)),
}


def test_each_expert_has_its_own_rows_of_the_stack() -> None:
    row = next(
        row
        for row in ARCHITECTURES
        if row.experts is not None
        and not row.experts_interleave
        and len(row.names.expert_gate_up) == 2
        and "{}" in row.names.expert_gate_up[0]
    )
    found = unstacked(row, STORED)
    assert found["lm_head.weight"] is STORED["lm_head.weight"]
    assert len(found) == 1 + 3 * 2 + 3
    gate, up = row.names.expert_gate_up
    last = [found[f"model.layers.0.{name.format(2)}.weight"] for name in (gate, up)]
    assert [(part.shape, part.expert, part.first) for part in last] == [
        ((4, 4), 2, 0),
        ((4, 4), 2, 4),
    ]


def test_families_without_experts_are_left_as_they_are() -> None:
    row = next(row for row in ARCHITECTURES if row.experts is None)
    assert unstacked(row, STORED) == STORED
