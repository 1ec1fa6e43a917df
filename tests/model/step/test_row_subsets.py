"""A forward pass over some rows of a layer gives those the bits of one over all."""

from dataclasses import replace
from typing import cast

import pytest
import torch
from torch import Tensor

from draftwerk.model.attention.reference import attend
from draftwerk.model.attention.tiled import TiledAttention
from draftwerk.model.batch.batch import Batch, Forward, Pages
from draftwerk.model.batch.option_forwards import StatesForward
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.native_shape import FORMATS
from draftwerk.model.native.pool import Pool
from draftwerk.model.reference.forward import TorchForward
from draftwerk.speculative.rounds import Draft
from tests.model.native.models import (
    part,
    random_pages,
    random_tokens,
    random_weights,
    round_of,
    tiny_config,
)

COUNT = 300
TOKENS = random_tokens(COUNT)
CONFIG = tiny_config(head_size=32, layer_count=3)
TREE = Draft(tokens=(5, 6, 7, 8, 9, 10), parents=(-1, -1, 0, 2, 1, 0), sources=("",) * 6)
SUBSETS = {
    "none": [],
    "the last": [COUNT - 1],
    "a few": [0, 1, 2, 77, 130, 131, 299],
    "every second": list(range(0, COUNT, 2)),
    "all but one": list(range(1, COUNT)),
}


@pytest.fixture(scope="module", params=[*FORMATS, "bf16 int8", "torch", "torch tiled"])
def forward(request: pytest.FixtureRequest, pool: Pool) -> Forward:
    weights = random_weights(CONFIG)
    if request.param.startswith("torch"):
        attention = TiledAttention() if "tiled" in request.param else attend
        return TorchForward(CONFIG, weights, attention)
    dtype, kv_dtype = (*request.param.split(), "auto")[:2]
    return NativeForward(CONFIG, weights, dtype, pool, kv_dtype)


@pytest.fixture(scope="module")
def read(forward: Forward) -> tuple[Tensor, Pages]:
    """The logits of every token and the pages, computed in one chunk."""
    pages = pages_for(forward)
    return forward(round_of([part(TOKENS)]), pages), pages


def pages_for(forward: Forward) -> Pages:
    if isinstance(forward, NativeForward):
        return random_pages(CONFIG, forward.page_dtype, width=forward.page_width)
    return random_pages(CONFIG, torch.float32)


def copied(pages: Pages) -> Pages:
    return Pages(pages.keys.clone(), pages.values.clone())


def assert_equal(ours: Pages, theirs: Pages, layers: slice = slice(None)) -> None:
    assert torch.equal(ours.keys[layers], theirs.keys[layers])
    assert torch.equal(ours.values[layers], theirs.values[layers])


def int32(numbers: list[int]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


@pytest.mark.parametrize("name", SUBSETS)
def test_logits_of_some_tokens(forward: Forward, read: tuple[Tensor, Pages], name: str) -> None:
    logits, pages = read
    ours = pages_for(forward)
    batch = replace(round_of([part(TOKENS)]), outputs=int32(SUBSETS[name]))
    assert torch.equal(forward(batch, ours), logits[SUBSETS[name]])
    assert_equal(ours, pages)


def test_logits_of_a_tree_beside_a_prompt(forward: Forward, read: tuple[Tensor, Pages]) -> None:
    rows = [part(random_tokens(60, seed=2), blocks=(40, 41, 42, 43)), part([3], 299, draft=TREE)]
    batch = round_of(rows)
    one, other = copied(read[1]), copied(read[1])
    whole = forward(batch, one)
    for wanted in ([59, *range(60, 67)], [60, 61, 63, 66]):
        assert torch.equal(forward(replace(batch, outputs=int32(wanted)), other), whole[wanted])
        assert_equal(one, other)


def sparse(positions: list[int], outputs: list[int]) -> Batch:
    """Return the batch of some tokens of the text, with all before them in the pages."""
    batch = round_of([part(TOKENS)])
    return replace(
        batch,
        tokens=batch.tokens[positions],
        positions=batch.positions[positions],
        slots=batch.slots[positions],
        seen=int32([position + 1 for position in positions]),
        row_starts=int32([0, len(positions)]),
        ancestors=batch.ancestors[positions],
        outputs=int32(outputs),
        facts=None,
    )


@pytest.mark.parametrize("step", [2, 7, 61])
def test_tokens_far_apart_in_one_row(
    forward: Forward, read: tuple[Tensor, Pages], step: int
) -> None:
    logits, pages = read
    ours = copied(pages)
    places = [*range(0, COUNT - 1, step), COUNT - 1]
    for tensor in (ours.keys, ours.values):
        for place in places:
            tensor[:, 1 + place // 16, place % 16] = 7
    assert torch.equal(forward(sparse(places, [*range(len(places))]), ours), logits[places])
    assert_equal(ours, pages)


@pytest.mark.parametrize("layers", [1, 2])
def test_the_lowest_layers_alone(forward: Forward, read: tuple[Tensor, Pages], layers: int) -> None:
    fresh, ours = pages_for(forward), pages_for(forward)
    batch = replace(round_of([part(TOKENS)]), outputs=int32([]), layers=layers)
    assert forward(batch, ours).shape == (0, CONFIG.vocab_size)
    assert_equal(ours, read[1], slice(0, layers))
    assert_equal(ours, fresh, slice(layers, None))


def test_outputs_behind_those_with_logits_have_states_alone(forward: Forward) -> None:
    batch = round_of([part(TOKENS)])
    whole = forward(replace(batch, outputs=int32([*range(COUNT)])), pages_for(forward))
    states = cast(StatesForward, forward).states
    for count, order in ((3, [3, 40, COUNT - 1, 0, 17, 41]), (0, [0, 17, 41])):
        some = replace(batch, outputs=int32(order), logit_count=count)
        logits = forward(some, pages_for(forward))
        found = cast(StatesForward, forward).states
        assert states is not None and found is not None
        assert torch.equal(logits, whole[order[:count]])
        assert torch.equal(found, states[order])


def test_what_makes_no_sense_is_refused(pool: Pool) -> None:
    native = NativeForward(CONFIG, random_weights(CONFIG), "bf16", pool)
    pages, batch = pages_for(native), round_of([part(TOKENS)])
    for refusal, changes in {
        "outputs are not ascending": {"outputs": int32([6, 5])},
        "a token is two outputs": {"outputs": int32([5, 5])},
        "more logits than outputs": {"outputs": int32([5]), "logit_count": 2},
        "logits need all layers": {"layers": 1},
        "no such number of layers": {"layers": 4},
        "what tokens see": {"seen": int32([*range(COUNT, 0, -1)])},
    }.items():
        with pytest.raises(ValueError, match=refusal):
            native(replace(batch, **changes), pages)
