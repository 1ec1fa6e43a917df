"""What a convolution sees of a text, wherever its tokens' inputs lie."""

from random import Random

import pytest
import torch

from draftwerk.model.batch.batch import Pages
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.reference.convolution import conv_slots, convolved, store_inputs
from draftwerk.speculative.rounds import NO_DRAFT, Draft

CPU = torch.device("cpu")
BLOCK_SIZE = 4


def test_a_token_sees_those_before_it_and_a_node_its_ancestors():
    layout = BatchBuilder(BLOCK_SIZE)
    layout.add([1, 2, 3], 0, (5,), NO_DRAFT, samples=True)
    tree = Draft((7, 8, 9, 10), (-1, -1, 0, 2), ("",) * 4)
    layout.add([6], 5, (1, 3, 2), tree, samples=True)
    slots = conv_slots(layout.batch(CPU), BLOCK_SIZE, 3)
    assert slots[:3].tolist() == [[-1, -1, 20], [-1, 20, 21], [20, 21, 22]]
    # Positions 3, 4 and 5 are in slots 7, 12 and 13, the nodes in 14, 15, 8 and 9.
    assert slots[3:].tolist() == [
        [7, 12, 13],
        [12, 13, 14],
        [12, 13, 15],
        [13, 14, 8],
        [14, 8, 9],
    ]


@pytest.mark.parametrize(("channels", "planes"), [(10, 2), (12, 2), (6, 1)])
def test_sums_are_those_of_inputs_in_any_slots(channels: int, planes: int):
    random = torch.Generator().manual_seed(0)
    pages = Pages(*(torch.full((planes + 1, 6, BLOCK_SIZE, 1, 3), 99.0) for _ in range(2)))
    inputs = torch.randn(9, channels, generator=random)
    weights = torch.randn(4, channels, generator=random)
    slots = torch.tensor(Random(0).sample(range(24), 9))
    own = range(1, planes + 1)
    store_inputs(inputs, pages, own, slots)
    seen = torch.stack([torch.cat([torch.tensor([-1, -1]), slots])[i : i + 3] for i in range(9)])
    found = convolved(weights, pages, own, seen, torch.float32)
    padded = torch.cat([torch.zeros(2, channels), inputs])
    wanted = sum(padded[tap : tap + 9] * weights[tap] for tap in range(3)) + weights[3]
    assert torch.allclose(found, wanted, atol=1e-6)
    assert (pages.keys[0] == 99.0).all()
    assert (pages.values[0] == 99.0).all()
