"""Paths are walked and put in place on the device as the host would have done it; none waits."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from draftwerk.model.batch.batch import Pages
from draftwerk.model.checkpoint.loader import load
from draftwerk.model.draft_head.head import Steps
from draftwerk.model.draft_head.tree import Start
from draftwerk.model.reference.kv_pages import move_slots
from draftwerk.model.step.loaded_model import BoundHead, LoadedModel
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.presampled import Presampled, RoundRequests
from draftwerk.model.step.row_walk import RowPlan, RowWalk, packed_tree, path_moves
from draftwerk.model.step.sequences import CachedSequence as Known
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.options.beams.verified_trees import path_to
from draftwerk.speculative.rounds import Draft
from draftwerk.speculative.row_parts.feedback import HeadNode
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.verify import accept
from tests.model.gpu.support.device import DEVICE
from tests.model.gpu.support.recorder import Recorder
from tests.support.draft_heads import random_head
from tests.support.model_driver import Driver, Live, generate, random_tree
from tests.support.rounds import make_row
from tests.support.runners import FP32, make_guessing_runner, make_runner
from tests.support.tiny_models import VOCAB

pytest.importorskip("triton", reason="Triton is not installed")

from draftwerk.model.gpu.build import GpuSettings, gpu_parts
from draftwerk.model.gpu.commit import compact, packed_trees, unpacked_trees
from draftwerk.model.gpu.commit import walk as walk_down

BLOCKS, PAGE = 40, 4
SAMPLINGS = [
    Sampling(temperature=0.0),
    Sampling(temperature=0.8, seed=1),
    Sampling(temperature=1.1, min_p=0.02, seed=2, branch=3),
    Sampling(temperature=0.9, seed=4, frequency_penalty=0.4),
]
SERVED = SAMPLINGS[:3]
WAITS = ("aten._local_scalar_dense", "aten.nonzero", "aten.masked_select", "aten.equal")
"""Operations that read numbers from a device."""


def random_pages(seed: int, dtype: torch.dtype) -> Pages:
    noise = torch.Generator().manual_seed(seed)
    shape = 2, BLOCKS, PAGE, 2, 8
    return Pages(*(torch.randn(shape, generator=noise).to(dtype).to(DEVICE) for _ in range(2)))


def walked(plan: RowPlan, told: list[int]) -> RowWalk:
    """Go down a tree, the answers given by node."""
    walk = RowWalk.begin(plan)
    accept(walk, dict(enumerate(told, start=plan.first)))
    return walk


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float8_e4m3fn], ids=str)
@pytest.mark.parametrize("seed", range(3))
def test_accepted_paths_are_where_the_host_would_have_moved_them(seed: int, dtype: torch.dtype):
    rng, blocks = Random(seed), list(range(BLOCKS))
    rng.shuffle(blocks)
    plans: list[RowPlan] = []
    answers: list[int] = []
    expected: list[RowWalk] = []
    for index in range(6):
        stop, room = rng.randint(1, 6), 0 if index == 0 else 12
        truth = [rng.randrange(5) for _ in range(6)]
        draft = random_tree(rng, truth, 40, room)
        table = tuple(blocks.pop() for _ in range(-(-(stop + 12) // PAGE)))
        row = make_row(stop - 1, stop, sequence_id=index, draft_max=12, blocks=table)
        known = Known([0] * stop, stop, SERVED[0])
        first = len(answers)
        plans.append(RowPlan(index, row, known, draft, first, PAGE))
        # Right down to the last node, and elsewhere by chance.
        own = [rng.randrange(40) for _ in range(len(draft.tokens) + 1)]
        for node in path_to(draft, len(draft.tokens) - 1):
            own[draft.parents[node] + 1] = draft.tokens[node]
        answers += own
        expected.append(walked(plans[-1], own))
    trees = [packed_tree(plan) for plan in plans]
    numbers = torch.from_numpy(packed_trees(trees)).to(DEVICE)
    packed = unpacked_trees(numbers, len(trees))
    told = torch.tensor(answers, dtype=torch.int32, device=DEVICE)
    paths, ends = walk_down(told, packed, max(len(tree.parents) + 1 for tree in trees))
    for index, (walk, tree) in enumerate(zip(expected, trees, strict=True)):
        count, last, said = ends[index].tolist()
        begin = int(packed.begins[index])
        assert begin == tree.first
        assert paths[begin : begin + count].tolist() == [node + 1 for node in walk.path]
        assert (last, said) == (walk.node + 1, walk.tokens[-1])
    moves = [move for walk in expected for move in path_moves(walk.plan, walk.path)]
    assert moves and max(len(walk.path) for walk in expected) > 1
    ours, theirs = random_pages(seed, dtype), random_pages(seed, dtype)
    compact(ours, packed, paths, ends)
    move_slots(theirs, moves)
    for mine, other in ((ours.keys, theirs.keys), (ours.values, theirs.values)):
        assert torch.equal(mine.view(torch.uint8), other.view(torch.uint8))


def parts_of(directory: Path, recorder: Recorder | None, attention: str = "triton") -> LoadedModel:
    model = load(str(directory), FP32, DEVICE)
    head = random_head(load(str(directory), FP32).weights, torch.arange(VOCAB))
    settings = GpuSettings("fp32", attention, False, 64, PAGE, rows_max=1)
    return gpu_parts(model, settings, recorder, head=head)[0]


def decoded(
    runner: TargetRunner, texts: Sequence[list[int]], samplings: Sequence[Sampling]
) -> Driver:
    """Decode the texts again, with random trees that often hold the truth."""

    def guess(live: Live, room: int) -> Draft:
        rng = Random(len(live.tokens) * 31 + live.sequence_id)
        return random_tree(rng, texts[live.sequence_id][len(live.output) :], VOCAB, min(room, 6))

    driver = Driver(runner, Random(1), guess, chunk_max=6)
    for index, sampling in enumerate(samplings):
        driver.add(index, [5 + index, 6, 7, 8, 9], sampling, 8)
    driver.run()
    return driver


def test_texts_and_head_tree_are_the_references(directory: Path):
    """Where a path is left in the wrong place, the text after it is another."""

    def head(weights):
        return random_head(weights, torch.arange(VOCAB))

    reference = make_guessing_runner(directory, head)
    texts = [
        generate(reference, [5 + index, 6, 7, 8, 9], sampling, 8)
        for index, sampling in enumerate(SAMPLINGS)
    ]
    runner = target_runner(parts_of(directory, Recorder()), successor_count=3)
    ours, theirs = decoded(runner, texts, SAMPLINGS), decoded(reference, texts, SAMPLINGS)
    assert [live.output for live in ours.all] == texts
    for mine, other in zip(ours.all, theirs.all, strict=True):
        found, expected = (
            [(one.tokens, one.path, one.feedback.head_tree) for one in live.decisions if one.tokens]
            for live in (mine, other)
        )
        assert found == expected
    assert any(one.path not in ((), tuple(range(len(one.path)))) for one in ours.all[0].decisions)


class Waits(TorchDispatchMode):
    """Counts what would stop a device's queue."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if str(func).startswith(WAITS):
            self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_step_waits_for_its_answers_and_for_nothing_else(directory: Path):
    """Trees, moves and the head's trees: one read, no second one, and no number read on the way."""
    parts = parts_of(directory, None)
    reads: list[Presampled] = []
    moved: list[object] = []
    waits = Waits()

    def choose(logits: Tensor, requests: object) -> list[int]:
        raise AssertionError("a second run of the head")

    def move(pages: Pages, moves: Sequence[tuple[int, int]]) -> None:
        moved.extend(moves)

    def presample(logits: Tensor, questions: RoundRequests) -> Presampled:
        with waits:
            reads.append(parts.backend.presample(logits, questions))
        return reads[-1]

    class Silent:
        """A head that may run on the device only."""

        def __call__(self, states: Tensor, tokens: list[int], count: int) -> Steps:
            raise AssertionError("a second run of the head")

        def propose(self, rows: Sequence[Start], budget: int) -> list[tuple[HeadNode, ...]]:
            raise AssertionError("a second run of the head")

    assert parts.draft_head is not None
    backend = replace(parts.backend, choose=choose, move_slots=move, presample=presample)
    silent = BoundHead(step=Silent(), forward=parts.draft_head.forward)
    runner = target_runner(replace(parts, backend=backend, draft_head=silent))
    texts = [
        generate(make_runner(directory), [5 + index, 6, 7, 8, 9], sampling, 8)
        for index, sampling in enumerate(SERVED)
    ]
    driver = decoded(runner, texts, SERVED)
    assert [live.output for live in driver.all] == texts
    assert len(reads) == driver.rounds
    assert moved == [] and waits.seen == []
    paths = [one.path for live in driver.all for one in live.decisions]
    assert any(path != tuple(range(len(path))) for path in paths)
    assert any(one.feedback.head_tree for live in driver.all for one in live.decisions)
