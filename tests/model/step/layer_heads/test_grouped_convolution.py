"""Each token of a block is mixed with those before it, by kernels of its own."""

import torch

from draftwerk.model.step.layer_heads.grouped_convolution import GroupedConvolution


def test_kernels_that_see_the_own_token_alone_leave_a_part_as_it_is() -> None:
    base = torch.zeros(2, 3, 4)
    base[:, 0] = 1.0
    convolution = GroupedConvolution(base, lambda rows: rows.new_zeros(len(rows), 2 * 3 * 2), 2)
    rows = torch.linspace(0.0, 1.0, 24).view(6, 4)
    found = convolution.around(lambda normed: 2.0 * normed, rows, 3)
    assert torch.equal(found, 2.0 * rows)


def test_the_token_before_is_seen_and_that_of_another_block_is_not() -> None:
    base = torch.zeros(2, 2, 4)
    base[0, 1] = 1.0
    base[1, 0] = 1.0
    convolution = GroupedConvolution(base, lambda rows: rows.new_zeros(len(rows), 2 * 2 * 2), 2)
    rows = torch.linspace(1.0, 2.0, 24).view(6, 4)
    found = convolution.around(lambda normed: normed, rows, 3)
    for block in (0, 3):
        assert not found[block].any()
        assert torch.equal(found[block + 1 : block + 3], rows[block : block + 2])
