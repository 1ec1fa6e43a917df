"""A draft head: its trees, in torch and natively, and how a runner uses them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from draftwerk.model.checkpoint.loader import load
from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk.model.checkpoint.weights import Weights
from draftwerk.model.draft_head import head as draft_head
from draftwerk.model.draft_head.head import DraftHead, find
from draftwerk.model.draft_head.torch_step import TorchStep
from draftwerk.model.draft_head.tree import (
    BEST,
    EXPANDED,
    LEVELS,
    LOOKED,
    OPEN_MAX,
    Start,
    build_trees,
)
from draftwerk.model.native.draft_head import KIND, NativeStep
from draftwerk.model.native.pool import Pool
from draftwerk.model.native.stored import dequantised, quantised
from draftwerk.speculative.rounds import NO_DRAFT, NO_FEEDBACK, Draft, Proposal
from draftwerk.speculative.row_parts.beam_rows import Branch
from draftwerk.speculative.row_parts.feedback import LOSS_NATS
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.sources.sequence_noise import SequenceNoise
from tests.support.draft_heads import idle_head, random_head
from tests.support.rounds import first_row, make_row, proposed
from tests.support.runners import FP32, make_guessing_runner, require_kernels
from tests.support.tiny_models import VOCAB, oracle_logits, save_tiny
from training.saved_head import save

PROMPT = [5, 6, 7, 8, 9, 5, 6]
GREEDY = Sampling(temperature=0.0)


def step_of(directory: Path, *, native: bool = False):
    weights = load(str(directory), FP32).weights
    head = random_head(weights, torch.arange(0, VOCAB, 2))
    return native_step(head, weights) if native else TorchStep(head, weights)


def native_step(head: DraftHead, weights: Weights):
    require_kernels()
    return NativeStep(head, weights.embedding, weights.lm_head, Pool(2))


def rounded(step: TorchStep) -> TorchStep:
    """Round the matrices of a step as the native one has them."""
    gate_up, down, step.small = (
        dequantised(quantised(matrix, KIND, Pool(1)))[:, : matrix.shape[1]]
        for matrix in (step.head.gate_up, step.head.down, step.small)
    )
    step.head = replace(step.head, gate_up=gate_up, down=down)
    return step


@pytest.mark.parametrize("rows", [1, 2, 5, 19])
def test_the_native_head_computes_what_the_torch_one_does(directory, rows):
    """Up to activations in eight bits: states within a few per cent, log-probabilities near."""
    native_step, torch_step = step_of(directory, native=True), rounded(step_of(directory))
    noise = torch.Generator().manual_seed(rows)
    states = torch.randn(rows, 32, generator=noise)
    tokens = torch.randint(0, VOCAB, (rows,), generator=noise).tolist()
    for _ in range(3):
        wanted, found = torch_step(states, tokens, 49), native_step(states, tokens, 49)
        assert (wanted.states - found.states).norm() < 0.03 * wanted.states.norm()
        for row in range(rows):
            by_token = dict(zip(wanted.tokens[row], wanted.logprobs[row], strict=True))
            assert set(found.tokens[row]) == set(by_token) == set(range(0, VOCAB, 2))
            assert found.logprobs[row] == sorted(found.logprobs[row], reverse=True)
            for token, logprob in zip(found.tokens[row], found.logprobs[row], strict=True):
                assert logprob == pytest.approx(by_token[token], abs=0.4)
        states = wanted.states


def test_a_row_of_the_native_head_does_not_depend_on_the_others(directory):
    step = step_of(directory, native=True)
    states = torch.randn(9, 32, generator=torch.Generator().manual_seed(3))
    tokens = list(range(9))
    together = step(states, tokens, 5)
    for row in range(9):
        alone = step(states[row : row + 1], tokens[row : row + 1], 5)
        assert torch.equal(alone.states[0], together.states[row])
        assert (alone.tokens[0], alone.logprobs[0]) == (
            together.tokens[row],
            together.logprobs[row],
        )


@pytest.mark.parametrize("vocabulary", [VOCAB // 2, 5], ids=["many", "few"])
@pytest.mark.parametrize("rows", [1, 4, 30])
def test_a_tree_grown_natively_is_the_one_grown_level_by_level(directory, rows, vocabulary):
    weights = load(str(directory), FP32).weights
    step = native_step(random_head(weights, torch.arange(vocabulary)), weights)
    noise = torch.Generator().manual_seed(rows)
    some = [Sampling(seed=-3, branch=2, temperature=0.4), GREEDY, Sampling(seed=1 << 40), GREEDY]
    samplings = 8 * some
    sizes: set[int] = set()
    for turn in range(20 + 200 // rows):  # the greatest trees are rare
        starts = [
            Start(
                torch.randn(1, 32, generator=noise),
                0,
                (7 * row + turn) % VOCAB,
                20 + turn,
                SequenceNoise(sampling),
            )
            for row, sampling in enumerate(samplings[turn % 2 : rows + turn % 2])
        ]
        for budget in (1 + turn % LEVELS, LEVELS):
            found = step.propose(starts, budget)
            assert found == build_trees(lambda *arguments: step(*arguments), starts, budget)
        sizes |= {len(head_tree) for head_tree in found}
        assert sum(map(len, found)) <= rows + (LEVELS - 1) * OPEN_MAX
    assert max(sizes) == 1 + EXPANDED * (LEVELS - 1) or rows > OPEN_MAX
    with pytest.raises(ValueError, match="vocabulary"):
        step.propose([starts[0]._replace(token=VOCAB)], LEVELS)


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(seed=7, temperature=0.7)])
def test_nodes_are_a_tree_whose_nodes_follow_their_parents(directory, sampling):
    step, sequence_noise = step_of(directory), SequenceNoise(sampling)
    noise = torch.Generator().manual_seed(5)
    all_states = torch.randn(3, 32, generator=noise)
    starts = [Start(all_states, row, 3 + row, 20 + row, sequence_noise) for row in range(3)]
    found = step.propose(starts, LEVELS)
    assert [head_tree[0].token for head_tree in found] == [3, 4, 5]
    for start, head_tree in zip(starts, found, strict=True):
        assert len(head_tree) <= 1 + EXPANDED * (LEVELS - 1)
        states, depths = [start.state], [0]
        for index, drafted in enumerate(head_tree):
            parent = head_tree[drafted.parent] if drafted.parent >= 0 else None
            before = states[drafted.parent + 1] if parent else start.state
            after = step(before[None], [drafted.token], LOOKED if sequence_noise.sampled else BEST)
            losses = [round(-value / LOSS_NATS) for value in after.logprobs[0]]
            at = start.position + depths[drafted.parent + 1]
            ranked = sequence_noise.ranked(at, after.tokens[0], losses)[:BEST]
            assert drafted.best == tuple(token for _, token in ranked)
            states.append(after.states[0])
            depths.append(depths[drafted.parent + 1] + 1)
            assert drafted.parent < index and depths[-1] <= LEVELS
            if parent:
                ranked = sequence_noise.ranked(at - 1, parent.best, parent.losses)
                assert drafted.token in [token for _, token in ranked[:EXPANDED]]
    assert any(len(head_tree) > 1 for head_tree in found)


def test_a_runner_drafts_from_the_last_accepted_node(directory, tmp_path):
    """This head's distribution after any token is the target's last one, which the oracle
    computes."""
    oracle = save_tiny(tmp_path, "llama")
    runner = make_guessing_runner(directory, idle_head)
    first = int(oracle_logits(oracle, PROMPT)[-1].argmax())
    wrong = (first + 1) % VOCAB
    draft = Draft((wrong, first, wrong), (-1, -1, 1), ("x",) * 3)
    (decision,) = runner.step(opened(draft)).decisions
    path = [*PROMPT, first, wrong][: len(PROMPT) + len(decision.path)]
    drafted = decision.feedback.head_tree[0]
    best = oracle_logits(oracle, path)[-1].topk(BEST).indices.tolist()
    assert (drafted.parent, drafted.token) == (-1, decision.tokens[-1])
    assert drafted.best[0] == best[0] and set(drafted.best) == set(best)


def test_head_skips_rows_without_drafts_or_that_ended(directory):
    runner = make_guessing_runner(directory, idle_head)
    (silent,) = runner.step(opened(NO_FEEDBACK)).decisions
    assert silent.tokens and silent.feedback.head_tree == ()
    (asked,) = runner.step(opened(NO_DRAFT)).decisions
    assert asked.feedback.head_tree
    ends = Sampling(temperature=0.0, stop_token_ids=asked.tokens)
    (ended,) = runner.step(opened(NO_DRAFT, ends)).decisions
    assert ended.tokens == asked.tokens and ended.feedback.head_tree == ()


def test_a_runner_drafts_where_a_beam_search_goes_on(directory, tmp_path):
    """This head's distribution after any token is the target's last one: after two survivors, not a
    third.

    The second node of the draft survives, so that what follows it was not computed.
    """
    oracle = save_tiny(tmp_path, "llama")
    runner = make_guessing_runner(directory, idle_head)
    scores = oracle_logits(oracle, PROMPT)[-1]
    first, second, third = scores.topk(3).indices.tolist()
    draft = Draft((third, first), (-1, -1), ("x", "x"))
    (decision,) = runner.step(branching(draft)).decisions
    (head_candidates,) = decision.options.head_candidates
    best = scores.topk(8)
    assert (head_candidates.node, head_candidates.token) == (-1, second)
    assert {token for token, _ in head_candidates.candidates} == set(best.indices.tolist())
    both = Draft((first, second), (-1, -1), ("x", "x"))
    (decision,) = runner.step(branching(both)).decisions
    assert {head_candidates.node for head_candidates in decision.options.head_candidates} <= {0, 1}
    assert len(decision.options.head_candidates) == 2
    for head_candidates in decision.options.head_candidates:
        text = [*PROMPT, both.tokens[head_candidates.node]]
        best = oracle_logits(oracle, text)[-1].topk(8).indices.tolist()
        assert {token for token, _ in head_candidates.candidates} == set(best)
    (silent,) = runner.step(branching(NO_FEEDBACK)).decisions
    assert silent.options.candidates and silent.options.head_candidates == ()


def test_head_skips_what_was_computed_before_the_round(directory):
    runner = make_guessing_runner(directory, idle_head)
    (decision,) = runner.step(branching(NO_DRAFT)).decisions
    (best, first), (other, second), *_ = decision.options.candidates[0]
    branch = Branch(group_id=0, candidates=4, width=2, known=((best, first), (other, second)))
    row = make_row(
        len(PROMPT), len(PROMPT), sequence_id=0, draft_max=8, blocks=tuple(range(8)), branch=branch
    )
    draft = Draft((best,), (-1,), ("x",))
    (decision,) = runner.step(proposed(row, drafts=[draft], round_id=1)).decisions
    assert len(decision.options.candidates) == 1, "of the node alone"
    assert decision.options.head_candidates == (), "its state is gone, and so is that of no other"


def test_a_head_is_found_for_its_own_target_only(directory, tmp_path, monkeypatch):
    model = load(str(directory), FP32)
    save_tiny(tmp_path / "other", "llama", seed=1)
    other = load(str(tmp_path / "other"), FP32)
    monkeypatch.setattr(draft_head, "HEADS", tmp_path)
    head = random_head(model.weights, torch.arange(VOCAB))
    path = tmp_path / "one.safetensors"
    save(head, model.weights, path)
    found = find("auto", model.config, model.weights)
    assert found is not None and torch.equal(found.norm, head.norm)
    assert find("auto", other.config, other.weights) is None
    with pytest.raises(Refused, match="another model"):
        find(str(path), other.config, other.weights)
    with pytest.raises(Refused, match="draft head"):
        find(str(tmp_path / "none"), model.config, model.weights)
    save_file({"down": torch.zeros(1)}, path, {"target": draft_head.fingerprint(model.weights)})
    with pytest.raises(Refused, match="draft head"):
        find(str(path), model.config, model.weights)


def branching(draft: Draft) -> Proposal:
    return opened(draft, branch=Branch(group_id=0, candidates=4, width=2))


def opened(draft: Draft, sampling: Sampling = GREEDY, **named: Branch) -> Proposal:
    usual = {"sequence_id": 0, "draft_max": 8, "blocks": tuple(range(8))}
    return proposed(first_row(PROMPT, sampling, **usual, **named), drafts=[draft])
