"""DFlash drafters: what they propose, how much of it is accepted, and the texts."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from draftwerk.model.draft_head import head_windows
from draftwerk.model.step.layer_heads import block_layers
from draftwerk.model.step.target_runner import TargetRunner
from draftwerk.speculative.row_parts.feedback import LOSS_NATS, HeadNode
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.sources.sequence_noise import SHARPNESS, gumbels
from tests.support.dflash_models import BLOCK, HEAD, SECOND, DFlashOracle
from tests.support.head_drafting import Drafting, accepted, best_path, chain_of, texts
from tests.support.model_driver import Driver
from tests.support.runners import make_runner_with_layer, require_kernels

PROMPT = [5, 6, 7, 8, 9, 5, 6, 11, 30, 2, 8, 71]
GREEDY, SAMPLED = Sampling(temperature=0.0), Sampling(temperature=0.8, seed=3)
SLIDES = {
    **{"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 9},
    "use_sliding_window": True,
}
ORACLES: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen3": {},
    "qwen3, windows": SLIDES,
    "qwen3_5_text": {"target_layers": [1, 4], "layers": 3},
    "gpt_oss": {},
    "qwen3, DFlash 2": {"second": {**SECOND, "causal": False}, **SLIDES},
}
"""What drafters' configs say, by the target's family."""
NATIVE = [pytest.param(False, id="torch"), pytest.param(True, id="native")]
WAYS = [
    pytest.param(
        name, native, sampling,
        id=f"{name}-{'native' if native else 'torch'}-{'keyed' if keyed else 'greedy'}",
        marks=pytest.mark.grid if (at + native + keyed) % 2 else (),
    )
    for at, name in enumerate(ORACLES)
    for native in (False, True)
    for keyed, sampling in enumerate((GREEDY, SAMPLED))
]  # fmt: skip
"""Of which the gate has every pair."""


@pytest.fixture(scope="module", params=[*ORACLES])
def oracle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    family, said = request.param.split(",")[0], ORACLES[request.param]
    return DFlashOracle(tmp_path_factory.mktemp("oracle"), family, **said)


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> DFlashOracle:
    """Return a target whose drafter is often right and often not."""
    made = DFlashOracle(tmp_path_factory.mktemp("near"))
    made.make_right(0.02)
    return made


def runner_of(oracle: DFlashOracle, native: bool = False, dtype: str = "fp32") -> TargetRunner:
    if native:
        require_kernels()
    folder = oracle.path.parent
    return make_runner_with_layer(folder, str(folder / HEAD), native, dtype)


def scores_of(logits: torch.Tensor, sampling: Sampling, position: int) -> torch.Tensor:
    """Return what a place's guess is the best by: log-probabilities, with the target's noise."""
    logprobs = logits.log_softmax(-1).double()
    if not sampling.temperature:
        return logprobs
    noise = gumbels(sampling.seed, sampling.branch, position, range(len(logits)))
    return logprobs * SHARPNESS / sampling.temperature + torch.tensor(noise)


def wrong(
    oracle: DFlashOracle,
    tree: Sequence[HeadNode],
    text: list[int],
    states: torch.Tensor,
    by: Sampling,
) -> int:
    """Return how many of a tree's guesses are not the definition's; two that are alike are."""
    before = [node.token for node in tree]
    wanted = oracle.guesses(text, states[: len(text) - 1], len(tree), before)
    scale = SHARPNESS / by.temperature if by.temperature else 1.0
    scores = [scores_of(each, by, len(text) + depth) for depth, each in enumerate(wanted)]
    return sum(
        float(own.max() - own[node.best[0]]) > 2 * LOSS_NATS * scale
        for own, node in zip(scores, tree, strict=True)
    )


@pytest.mark.parametrize(("oracle", "native", "sampling"), WAYS, indirect=["oracle"])
def test_what_it_proposes_is_what_the_definition_does(oracle, native, sampling):
    driver = Driver(runner_of(oracle, native), guess=chain_of, chunk_max=4 if native else 100)
    live = driver.add(1, PROMPT, sampling, 14)
    driver.run()
    states, known, sizes = oracle.states(live.tokens), len(PROMPT), list[int]()
    for decision in live.decisions:
        known += len(decision.tokens)
        if tree := decision.feedback.head_tree:
            tree = best_path(tree)
            sizes.append(len(tree))
            assert wrong(oracle, tree, live.tokens[:known], states, sampling) == 0
    assert max(sizes) == BLOCK - 1 and min(sizes) == 1


@pytest.mark.parametrize("sampling", [GREEDY, SAMPLED], ids=["greedy", "keyed"])
@pytest.mark.parametrize("native", NATIVE)
def test_as_much_is_accepted_as_in_a_plain_decoding_loop(near, native, sampling):
    driver = Driver(runner_of(near, native), guess=chain_of)
    live = driver.add(1, PROMPT, sampling, 60)
    driver.run()
    states, known, counts = near.states(live.tokens), len(PROMPT), list[tuple[int, int]]()
    before: list[int] = []
    for decision in live.decisions:
        counts.append((len(decision.path), accepted(before, live.tokens[known:])))
        known += len(decision.tokens)
        count = len(best_path(decision.feedback.head_tree))
        logits = near.guesses(live.tokens[:known], states[: known - 1], count) if count else []
        scores = [scores_of(each, sampling, known + depth) for depth, each in enumerate(logits)]
        before = [int(each.argmax()) for each in scores]
    assert [found for found, _ in counts[:-1]] == [wanted for _, wanted in counts[:-1]]
    assert 5 < sum(found for found, _ in counts) < 55


def test_a_long_prompt_is_read_whole_however_it_is_cut(near, monkeypatch):
    monkeypatch.setattr(head_windows, "WAITING_MAX", 8)
    prompt = [7 * place % 90 for place in range(100)]
    for chunk_max in (1000, 13):
        driver = Driver(runner_of(near), guess=chain_of, chunk_max=chunk_max)
        live = driver.add(1, prompt, GREEDY, 8)
        driver.run()
        states = near.states(live.tokens)
        at, decision = next(
            (index, each) for index, each in enumerate(live.decisions) if each.feedback.head_tree
        )
        known = len(prompt) + sum(len(each.tokens) for each in live.decisions[: at + 1])
        tree = best_path(decision.feedback.head_tree)
        assert wrong(near, tree, live.tokens[:known], states, GREEDY) == 0


def test_of_a_text_that_is_longer_than_its_window_the_end_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(head_windows, "LONG_BLOCKS", 10)
    oracle = DFlashOracle(tmp_path)
    oracle.make_right(0.0)
    runner = runner_of(oracle)
    driver = Driver(runner, guess=chain_of)
    live = driver.add(1, PROMPT, GREEDY, 200)
    driver.run()
    assert runner.parts.draft_head.windows is not None
    runner.parts.draft_head.windows.check()
    assert sum(len(each.path) for each in live.decisions[-8:]) > 8 * (BLOCK - 2)


@pytest.mark.parametrize(
    ("sampling", "how"),
    [(SAMPLED, {}), (GREEDY, {"chunk_max": 5, "preempts": 0.08})],
    ids=["sampled, calm", "greedy, preempted"],
)
def test_drafts_change_no_text(near, sampling, how):
    drafting = Drafting(runner_of(near, native=True))
    drafted, _ = texts(drafting, sampling, **how)
    assert drafted == texts(runner_of(near, native=True), sampling)[0]
    assert max(len(draft.tokens) for draft, _ in drafting.drafts) > 4
    assert 0.05 < drafting.acceptance < 0.95


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "int4"])
def test_a_drafter_that_is_right_saves_rounds(tmp_path, dtype):
    oracle = DFlashOracle(tmp_path)
    oracle.make_right(0.0)
    drafting = Drafting(runner_of(oracle, True, dtype))
    drafted, rounds = texts(drafting, GREEDY)
    plain, rounds_without = texts(runner_of(oracle, True, dtype), GREEDY)
    assert drafted == plain
    assert rounds_without > 1.5 * rounds


def test_a_search_is_offered_nothing(near):
    head = runner_of(near).parts.draft_head
    assert head is not None and isinstance(head.step, block_layers.BlockHead)
    assert head.step(torch.zeros(2, 96), [3, 4], 5)[1:] == ([[], []], [[], []])
