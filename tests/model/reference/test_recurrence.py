"""States of recurrent layers are those of the text, whatever a text was computed with.

Each test is for torch, the twin, and for the native kernels in each format, those to the same bits.
"""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor

from draftwerk.cache.kinds.recurrent_states import RowState
from draftwerk.model.attention.reference import attend
from draftwerk.model.batch.batch import Pages
from draftwerk.model.batch.batch_state import BatchState
from draftwerk.model.batch.builder import BatchBuilder
from draftwerk.model.checkpoint.config import ModelConfig
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.native.forward import NativeForward
from draftwerk.model.native.pool import Pool
from draftwerk.model.reference.forward import TorchForward
from draftwerk.model.step.loaded_model import LoadedModel
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.rounds import NO_DRAFT, Draft
from draftwerk.speculative.sampling import Sampling
from tests.model.native.models import random_pages
from tests.support.model_driver import Driver, Live, trees_along
from tests.support.rounds import first_row, make_row, proposed
from tests.support.runners import require_kernels
from tests.support.tiny_models import VOCAB, save_tiny

FAMILIES = ("qwen3_5_text", "qwen3_5_moe_text", "qwen3_next", "granitemoehybrid")
KINDS = ("torch", "fp32", "bf16", "int8", "int4")
"""Of which the gate gives a family torch and every other one, and the next family the others."""
TOKENS = Random(3).choices(range(VOCAB), k=100)
TABLE = tuple(range(30))
SIZE = 4
Advancing = TorchForward | NativeForward


class Model:
    """A model over small blocks, and eight slots of states full of noise."""

    def __init__(self, config: ModelConfig, forward: Advancing, pages: Pages) -> None:
        self.config, self.forward, self.pages = config, forward, pages

    @property
    def slots(self) -> Tensor:
        assert self.pages.states is not None
        return self.pages.states

    def scan(self, *rows: tuple[int, int, RowState], blocks: int = 30) -> None:
        """Compute tokens start .. stop of the text, each in a block table of its own."""
        layout = BatchBuilder(SIZE)
        for number, (start, stop, state) in enumerate(rows):
            table = tuple(range(blocks * number, blocks * (number + 1)))
            layout.add(TOKENS[start:stop], start, table, NO_DRAFT, samples=True, state=state)
        self.forward(layout.batch(torch.device("cpu")), self.pages)

    def same(self, one: Tensor, other: Tensor) -> bool:
        """Compare what slots hold, but for what is left of their headers."""
        if one[0] != other[0]:
            return False
        if isinstance(self.forward, TorchForward):  # a row's bits depend on how many there are
            return torch.allclose(one[16:], other[16:], atol=1e-4)
        return torch.equal(one[16:], other[16:])

    def state_of(self, stop: int) -> Tensor:
        """Return the state of the text's first tokens, scanned alone."""
        self.scan((0, stop, RowState(-1, 7)))
        return self.slots[7].clone()


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            (family, kind),
            id=f"{family} {kind}",
            marks=pytest.mark.grid if at and (at + of) % 2 else (),
        )
        for of, family in enumerate(FAMILIES)
        for at, kind in enumerate(KINDS)
    ],
)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Model:
    family, kind = request.param
    directory: Path = tmp_path_factory.mktemp("tiny")
    save_tiny(directory, family)
    loaded = load(str(directory), torch.float32 if kind in ("torch", "fp32") else None)
    if kind == "torch":
        forward: Advancing = TorchForward(loaded.config, loaded.weights, attend)
        pages = random_pages(loaded.config, torch.float32, 150, SIZE)
    else:
        require_kernels()
        forward = NativeForward(loaded.config, loaded.weights, kind, Pool(2))
        pages = random_pages(loaded.config, forward.page_dtype, 150, SIZE, forward.page_width)
    return Model(loaded.config, forward, pages)


def test_snapshots_of_uneven_rows_are_those_made_alone(model: Model) -> None:
    rows = [(0, 9, 8), (0, 22, 12), (0, 5, 4), (0, 61, 60)]
    model.scan(
        *(
            (start, stop, RowState(-1, 0, ((at, number + 1),)))
            for number, (start, stop, at) in enumerate(rows)
        )
    )
    for number, (_, _, at) in enumerate(rows):
        assert model.same(model.slots[number + 1].clone(), model.state_of(at))


def test_any_cut_comes_to_the_same_state(model: Model) -> None:
    truth = model.state_of(80)
    for cuts in ((1,), (3, 4, 5), (63, 64, 65), range(1, 70)):
        bounds = [0, *cuts, 80]
        for number in range(len(bounds) - 1):
            source = number % 2 if number else -1
            model.scan((bounds[number], bounds[number + 1], RowState(source, 1 - number % 2)))
        assert model.same(model.slots[1 - (len(bounds) - 2) % 2].clone(), truth), cuts


def test_a_row_may_be_computed_twice(model: Model) -> None:
    model.scan((0, 20, RowState(-1, 0)))
    before = model.slots[0].clone()
    for _ in range(2):
        model.scan((20, 33, RowState(0, 1, ((24, 2),))))
        assert model.same(model.slots[0], before)
    assert model.same(model.slots[1].clone(), model.state_of(33))
    assert model.same(model.slots[2].clone(), model.state_of(24))


def test_another_text_goes_on_from_a_snapshot_at_each_block(model: Model) -> None:
    model.scan((0, 50, RowState(-1, 0)))
    truth = model.slots[0].clone()
    for at in range(SIZE, 50, SIZE):
        model.scan((0, 49, RowState(-1, 1, ((at, 2),))))
        model.scan((at, 50, RowState(2, 3)))
        assert model.same(model.slots[3], truth)


def tree_of(path: list[int], rng: Random) -> tuple[Draft, list[int]]:
    """Return a tree with a path of these tokens among wrong branches, and the path's nodes."""
    tokens, parents, nodes, last = list[int](), list[int](), list[int](), -1
    for token in path:
        for _ in range(rng.randint(0, 3)):
            tokens.append(rng.randrange(VOCAB))
            parents.append(rng.choice([last, *range(len(tokens) - 1)]))
        nodes.append(len(tokens))
        tokens.append(token)
        parents.append(last)
        last = nodes[-1]
    return Draft(tuple(tokens), tuple(parents), ("",) * len(tokens)), nodes


def test_drafts_leave_no_trace_but_their_accepted_path(model: Model) -> None:
    for length, count in product((0, 1, 2, 3, 6, 9), (1, 2, 5)):
        check_accepted_path(model, length, count)


def check_accepted_path(model: Model, length: int, count: int) -> None:
    """Compare the states after so many accepted tokens behind so many committed ones."""
    rng, start = Random(length), 18
    model.scan((0, start, RowState(-1, 0)))
    stop = start + count
    draft, nodes = tree_of(TOKENS[stop : stop + length] + [VOCAB - 1] * 2, rng)
    layout = BatchBuilder(SIZE)
    state = RowState(0, 1, ((20, 2), (24, 3)))
    layout.add(TOKENS[start:stop], start, TABLE, draft, samples=True, state=state)
    model.forward(layout.batch(torch.device("cpu")), model.pages)
    (own,) = layout.states
    assert isinstance(own, BatchState)
    if length:
        model.forward.advance([(own, nodes[:length])], model.pages)
    end = stop + length
    found = [model.slots[slot].clone() for slot in (1, 2, 3)]
    assert model.same(found[0], model.state_of(end))
    for at, snapshot in ((20, found[1]), (24, found[2])):
        if start < at <= end:
            assert model.same(snapshot, model.state_of(at))


def runner_of(model: Model) -> TargetRunner:
    parts = LoadedModel(forward=model.forward, pages=model.pages, vocab_size=VOCAB)
    return target_runner(parts)


def test_texts_with_trees_are_those_without(model: Model) -> None:
    """And preempted in between."""
    rng, greedy = Random(2), Sampling(temperature=0.0)
    prompts = [[rng.randrange(VOCAB) for _ in range(rng.randint(1, 30))] for _ in range(3)]

    def texts(guesses: Callable[[Live, int], Draft], preempts: float) -> list[list[int]]:
        driver = Driver(runner_of(model), Random(4), guesses, chunk_max=7, preempts=preempts)
        lives = [driver.add(index, prompt, greedy, 20) for index, prompt in enumerate(prompts)]
        driver.run()
        return [live.output for live in lives]

    plain = texts(lambda live, room: NO_DRAFT, 0.0)
    assert texts(trees_along(rng, dict(enumerate(plain)), VOCAB), 0.05) == plain


def test_a_state_of_another_position_is_refused(model: Model) -> None:
    runner = runner_of(model)
    greedy = Sampling(temperature=0.0)
    runner.step(proposed(first_row(TOKENS[:5], greedy, blocks=TABLE, state=RowState(-1, 0))))
    wrong = make_row(5, 6, blocks=TABLE, new_token_ids=(3,), state=RowState(2, 1))
    decision = runner.step(proposed(wrong)).decisions[0]
    assert decision.error.startswith("the state is that of position")
    in_place = make_row(5, 6, blocks=TABLE, state=RowState(0, 0))
    decision = runner.step(proposed(in_place)).decisions[0]
    assert decision.error == "a state is written where it is read"
