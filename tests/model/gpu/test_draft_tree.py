"""A draft head on the device: its steps, and its trees, which are the plain twin's."""

from pathlib import Path
from random import Random

import pytest
import torch

from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.draft_head.head import DraftHead
from draftwerk.model.draft_head.torch_step import TorchStep
from draftwerk.model.draft_head.tree import EXPANDED, LEVELS, Start, build_trees
from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.rounds import NO_DRAFT, Draft
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.sources.sequence_noise import SequenceNoise
from tests.model.gpu.support.device import DEVICE
from tests.model.gpu.support.recorder import Recorder
from tests.support.draft_heads import idle_head, random_head
from tests.support.model_driver import Driver, Live, generate
from tests.support.runners import FP32, make_guessing_runner
from tests.support.tiny_models import VOCAB

pytest.importorskip("triton", reason="Triton is not installed")

from draftwerk.model.gpu.build import GpuSettings, gpu_parts
from draftwerk.model.gpu.draft_head import GpuDraftHead
from draftwerk.model.gpu.draft_tree import GpuDraftTree

SAMPLINGS = [
    Sampling(temperature=0.0),
    Sampling(temperature=0.7, seed=7),
    Sampling(temperature=1.4, seed=2**63 + 9, branch=5),
    Sampling(temperature=0.2, seed=1),
    Sampling(temperature=1.0, top_p=0.9, seed=3),
]


def steps(directory: Path, vocabulary: torch.Tensor, seed: int = 1):
    """Return a head in plain torch, and on the device."""
    weights = load(str(directory), FP32, DEVICE).weights
    head = random_head(weights, vocabulary, seed=seed)
    plain = load(str(directory), FP32).weights
    return TorchStep(head, plain), GpuDraftTree(head, weights)


def every_token_head(weights: Weights) -> DraftHead:
    return random_head(weights, torch.arange(VOCAB))


def starts(seed: int, count: int, sharp: float) -> list[Start]:
    noise, rng = torch.Generator().manual_seed(seed), Random(seed)
    return [
        Start(
            torch.randn(1, 32, generator=noise) * sharp,
            0,
            rng.randrange(VOCAB),
            rng.randrange(2000),
            SequenceNoise(SAMPLINGS[row % len(SAMPLINGS)]),
        )
        for row in range(count)
    ]


def moved(rows: list[Start]) -> list[Start]:
    return [row._replace(states=row.states.to(DEVICE)) for row in rows]


def test_a_step_is_the_twins(directory):
    plain, ours = steps(directory, torch.arange(0, VOCAB, 2))
    states = torch.randn(5, 32, generator=torch.Generator().manual_seed(1))
    tokens = [3, 96, 0, 3, 50]
    wanted, found = plain(states, tokens, 60), ours(states.to(DEVICE), tokens, 60)
    torch.testing.assert_close(found.states.cpu(), wanted.states, atol=1e-5, rtol=1e-5)
    assert found.tokens == wanted.tokens
    torch.testing.assert_close(found.logprobs, wanted.logprobs, atol=1e-5, rtol=1e-5)


def test_a_step_in_half_the_bits_is_near_the_twins(directory):
    """States and log-probabilities stay float32; the matrices are those of a bf16 target."""
    weights = load(str(directory), torch.bfloat16, DEVICE).weights
    head = random_head(load(str(directory), torch.bfloat16).weights, torch.arange(VOCAB))
    plain = TorchStep(head, load(str(directory), torch.bfloat16).weights)
    states = torch.randn(5, 32, generator=torch.Generator().manual_seed(1))
    tokens = [3, 96, 0, 3, 50]
    wanted = plain(states, tokens, VOCAB)
    found = GpuDraftHead(head, weights)(states.to(DEVICE).bfloat16(), tokens, VOCAB)
    assert found.states.dtype == torch.float32
    assert (found.states.cpu() - wanted.states).norm() < 0.02 * wanted.states.norm()
    for row in range(5):
        by_token = dict(zip(wanted.tokens[row], wanted.logprobs[row], strict=True))
        for token, logprob in zip(found.tokens[row], found.logprobs[row], strict=True):
            assert logprob == pytest.approx(by_token[token], abs=0.2)


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("size", [VOCAB, 40, 5])
def test_a_tree_is_the_twins(seed: int, size: int, directory):
    """Of each distribution, by themselves and together; a head's vocabulary may be very small."""
    vocabulary = torch.randperm(VOCAB, generator=torch.Generator().manual_seed(seed))[:size]
    plain, ours = steps(directory, vocabulary.sort().values, seed)
    rows = starts(seed, 11, sharp=2.0 + seed)
    expected = build_trees(plain, rows, LEVELS, EXPANDED * len(rows))
    assert ours.propose(moved(rows), LEVELS) == expected
    assert ours.propose(moved(rows[3:4]), LEVELS) == expected[3:4]
    assert any(len(head_tree) > 3 for head_tree in expected)
    depths = [len(head_tree) for head_tree in expected]
    assert min(depths) < max(depths) or size == 5


def test_recorded_trees_are_grown_in_parts_and_keep_no_state(directory):
    plain, ours = steps(directory, torch.arange(VOCAB))
    recorder = Recorder()
    ours.record((1, 2, 4), recorder)
    for seed, count, replays in ((1, 11, 3), (2, 3, 1), (3, 1, 1), (4, 4, 1)):
        before, rows = recorder.replays, starts(seed, count, sharp=2.0)
        assert ours.propose(moved(rows), LEVELS) == build_trees(
            plain, rows, LEVELS, EXPANDED * len(rows)
        )
        assert recorder.replays - before == replays
    assert ours.propose([], LEVELS) == []


def test_levels_as_deep_as_there_are(directory):
    _, ours = steps(directory, torch.arange(VOCAB))
    rows = starts(5, 8, sharp=4.0)
    deepest = 0
    for head_tree in ours.propose(moved(rows), LEVELS):
        depths: list[int] = []
        for node in head_tree:
            depths.append(1 + (depths[node.parent] if node.parent >= 0 else 0))
        deepest = max(deepest, *depths)
    assert deepest == LEVELS


PROMPTS = [5, 6, 7], [8, 9]


@pytest.mark.parametrize(
    ("make_head", "graphs"),
    [
        *((idle_head, False), (every_token_head, True)),
        *(
            pytest.param(*each, marks=pytest.mark.grid)
            for each in ((idle_head, True), (every_token_head, False))
        ),
    ],
    ids=["idle-kernels", "random-graphs", "idle-graphs", "random-kernels"],
)
def test_a_runner_drafts_what_the_reference_does(make_head, graphs, directory):
    """From the last accepted node, in rounds with prompts, drafts and company."""
    model = load(str(directory), FP32, DEVICE)
    settings = GpuSettings("fp32", "triton", block_count=24, block_size=4, rows_max=1)
    head = make_head(load(str(directory), FP32).weights)
    parts, _ = gpu_parts(model, settings, Recorder() if graphs else None, head=head)
    reference = make_guessing_runner(directory, make_head)
    texts = [
        generate(reference, p, sampling, 6) for p, sampling in zip(PROMPTS, SAMPLINGS, strict=False)
    ]
    wanted, found = decisions(reference, texts), decisions(target_runner(parts), texts)
    assert found == wanted
    assert any(path for _, path, _ in found)
    assert all(head_tree for _, _, head_tree in found)


def decisions(runner: TargetRunner, texts: list[list[int]]) -> list[tuple]:
    """Return what is decided where the second node of each draft is right."""

    def guess(live: Live, room: int) -> Draft:
        true = texts[live.sequence_id][len(live.output)]
        other = (true + 1) % VOCAB
        return Draft((other, true), (-1, -1), ("x",) * 2) if room > 1 else NO_DRAFT

    driver = Driver(runner, Random(1), guess)
    lives = [
        driver.add(index, prompt, sampling, 6)
        for index, (prompt, sampling) in enumerate(zip(PROMPTS, SAMPLINGS, strict=False))
    ]
    driver.run()
    return [
        (one.tokens, one.path, one.feedback.head_tree) for live in lives for one in live.decisions
    ]
