"""One step of the target: one seed gives one text, and a bad row fails alone."""

from dataclasses import replace
from random import Random
from unittest.mock import Mock

import msgspec
import pytest
import torch

from draftwerk.model.step.options.step_options import target_runner
from draftwerk.model.step.target_runner import StepOption, TargetRunner
from draftwerk.speculative.rounds import NO_DRAFT, Draft, NewSequence, Proposal, Row, chain
from draftwerk.speculative.row_parts.beam_rows import Branch
from draftwerk.speculative.row_parts.feedback import LOSS_NATS
from draftwerk.speculative.sampling import Sampling, edited
from tests.support.model_driver import Driver, generate, trees_along
from tests.support.rounds import first_row, make_row, proposed
from tests.support.runners import make_runner
from tests.support.tiny_models import VOCAB, oracle_logits, save_tiny

PROMPT = [5, 6, 7, 8, 9, 5, 6]
GREEDY = Sampling(temperature=0.0)
SAMPLINGS = {
    "greedy": GREEDY,
    "plain": Sampling(seed=1),
    "truncated": Sampling(temperature=0.8, top_p=0.9, top_k=20, min_p=0.02, seed=2),
    "penalties": Sampling(
        seed=3, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.3
    ),
    "greedy with penalties": Sampling(temperature=0.0, frequency_penalty=1.0),
    "bias": Sampling(seed=4, logit_bias=((11, 4.0), (12, -100.0))),
    "minimum": Sampling(seed=5, tokens_min=15, stop_token_ids=(11, 12, 13, 14, 15, 16)),
    "stops": Sampling(temperature=1.5, seed=6, stop_token_ids=tuple(range(0, VOCAB, 9))),
}


@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_one_seed_gives_one_text_for_any_drafts_chunks_preemptions_and_company(sampling, directory):
    runner, rng = make_runner(directory), Random(1)
    plain = generate(runner, PROMPT, sampling, 30)
    guess = trees_along(rng, {0: plain}, VOCAB)
    driver = Driver(runner, rng, guess, chunk_max=5, preempts=0.05)
    live = driver.add(0, PROMPT, sampling, 30)
    for other in range(1, 6):
        prompt = [rng.randrange(VOCAB) for _ in range(rng.randint(1, 30))]
        driver.add(other, prompt, rng.choice([*SAMPLINGS.values()]), 30)
    driver.run()
    assert live.output == plain
    assert sum(len(decision.path) for decision in live.decisions) > 0


@pytest.mark.parametrize("place", ["last known token", "drafted node", "node behind an error"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_logits_that_are_no_numbers_fail_their_row_alone(place, value, directory):
    runner, sound = make_runner(directory), make_runner(directory)
    plain = tuple(generate(runner, PROMPT, Sampling(temperature=0.0), 3))
    guess = (plain[0], (plain[1] + (place == "node behind an error")) % VOCAB, plain[2])
    rows = [
        first_row(PROMPT, GREEDY, sequence_id=n, draft_max=3, blocks=(3 * n, 3 * n + 1, 3 * n + 2))
        for n in (1, 2)
    ]
    proposal = proposed(*rows, drafts=[chain(guess, "x")] * 2, round_id=1)
    broken = {"last known token": 0, "drafted node": 1, "node behind an error": 3}[place]
    break_logits(runner, broken, value)
    first, second = runner.step(proposal).decisions
    assert second == sound.step(proposal).decisions[1]
    if place == "node behind an error":
        assert not first.error, "what nobody reaches harms nobody"
    else:
        assert "not a number" in first.error and not first.tokens


def break_logits(runner: TargetRunner, row: int, value: float) -> None:
    forward = runner.parts.forward

    def breaking(*arguments):
        logits = forward(*arguments).clone()
        logits[row] = value
        return logits

    runner.parts = replace(runner.parts, forward=breaking)


def test_a_branch_whose_nodes_alone_are_computed_does_not_fail_for_the_row_behind_it(directory):
    runner = make_runner(directory)
    runner.step(opened(Sampling(temperature=0.0), NO_DRAFT))
    known = Branch(group_id=1, candidates=2, known=((11, -0.1), (12, -0.2)))
    branch = make_row(len(PROMPT), len(PROMPT), draft_max=2, blocks=(0, 1, 2), branch=known)
    behind = first_row(PROMPT, GREEDY, sequence_id=2, blocks=(3, 4))
    nodes = Draft((11, 12), (-1, -1), ("x", "x"))
    break_logits(runner, len(nodes.tokens), float("nan"))
    proposal = proposed(branch, behind, drafts=(nodes, NO_DRAFT), round_id=1)
    first, second = runner.step(proposal).decisions
    assert not first.error and len(first.options.candidates) == 2
    assert "not a number" in second.error


def test_different_seeds_and_branches_give_different_texts(directory):
    runner = make_runner(directory)
    samplings = [Sampling(seed=1), Sampling(seed=2), Sampling(seed=1, branch=1)]
    assert len({tuple(generate(runner, PROMPT, sampling, 20)) for sampling in samplings}) == 3


def test_a_stop_token_that_was_drafted_ends_the_walk(directory):
    runner = make_runner(directory)
    plain = generate(runner, PROMPT, Sampling(temperature=0.0), 8)
    sampling = Sampling(temperature=0.0, stop_token_ids=(plain[2],))
    proposal = opened(sampling, chain(tuple(plain[:6]), "x"))
    (decision,) = runner.step(proposal).decisions
    count = plain.index(plain[2]) + 1
    assert list(decision.tokens) == plain[:count]
    assert decision.path == tuple(range(count - 1))


def test_an_accepted_path_is_compacted_so_that_the_next_row_can_read_it(directory):
    runner = make_runner(directory)
    plain = generate(runner, PROMPT, Sampling(temperature=0.0), 12)
    wrong = [(token + 1) % VOCAB for token in plain]
    tree = Draft(
        (wrong[0], plain[0], wrong[1], plain[1], wrong[2], plain[2]),
        (-1, -1, 1, 1, 3, 3),
        ("x",) * 6,
    )
    (decision,) = runner.step(opened(Sampling(temperature=0.0), tree)).decisions
    assert (decision.path, list(decision.tokens)) == ((1, 3, 5), plain[:4])
    moved = [tensor.clone() for tensor in (runner.pages.keys, runner.pages.values)]
    runner.step(opened(Sampling(temperature=0.0), chain(tuple(plain[:3]), "x")))
    slots = slice(0, len(PROMPT) + 3)
    for before, after in zip(moved, (runner.pages.keys, runner.pages.values), strict=True):
        torch.testing.assert_close(before.flatten(1, 2)[:, slots], after.flatten(1, 2)[:, slots])


def test_block_copies_are_made_before_anything_is_written(directory):
    runner = make_runner(directory)
    sampling = Sampling(temperature=0.0)
    plain = generate(runner, PROMPT, sampling, 6)
    runner.step(opened(sampling, NO_DRAFT, sequence_id=1))
    fork = NewSequence((*PROMPT, plain[0]), len(PROMPT), sampling)
    # The fork shares the first block; of the second it has a copy, to go on in.
    row = make_row(7, 8, sequence_id=2, draft_max=4, blocks=(0, 9, 10), new_sequence=fork)
    (decision,) = runner.step(proposed(row, round_id=1, copies=((1, 9),))).decisions
    assert list(decision.tokens) == plain[1:2]


def test_log_probabilities_come_with_every_committed_token(directory, tmp_path):
    oracle = save_tiny(tmp_path, "llama")
    runner = make_runner(directory)
    sampling = Sampling(temperature=0.0, logprobs=3, presence_penalty=0.5)
    plain = generate(runner, PROMPT, sampling, 6)
    (decision,) = runner.step(opened(sampling, chain(tuple(plain[:4]), "x"))).decisions
    samplings = oracle_logits(oracle, PROMPT + plain)[len(PROMPT) - 1 :].log_softmax(-1)
    assert len(decision.logprobs) == len(decision.tokens) == 5
    for distribution_, token, reported in zip(samplings, plain, decision.logprobs, strict=False):
        assert reported.logprob == pytest.approx(float(distribution_[token]), abs=1e-4)
        assert [token for token, _ in reported.top] == distribution_.topk(3).indices.tolist()


def test_tokens_that_a_request_names_stand_in_place_of_alternatives(directory, tmp_path):
    oracle, runner = save_tiny(tmp_path, "llama"), make_runner(directory)
    plain = generate(runner, PROMPT, Sampling(temperature=0.0), 6)
    named = tuple(range(0, 60, 3)) if plain[0] % 3 else (plain[0], *range(1, 20))
    sampling = Sampling(temperature=0.0, logprobs=0, logprob_token_ids=named)
    (decision,) = (
        make_runner(directory).step(opened(sampling, chain(tuple(plain[:4]), "x"))).decisions
    )
    samplings = oracle_logits(oracle, PROMPT + plain)[len(PROMPT) - 1 :].log_softmax(-1)
    assert len(decision.logprobs) == len(decision.tokens) == 5
    for distribution_, token, reported in zip(samplings, plain, decision.logprobs, strict=False):
        assert [each for each, _ in reported.top] == [token, *(n for n in named if n != token)]
        assert reported.top[0] == (token, reported.logprob)
        wanted = [float(distribution_[each]) for each, _ in reported.top]
        assert [value for _, value in reported.top] == pytest.approx(wanted, abs=1e-4)


def test_the_best_successors_of_every_node_are_reported_if_asked_for(directory, tmp_path):
    oracle = save_tiny(tmp_path, "llama")
    runner = target_runner(make_runner(directory).parts, successor_count=3)
    tree = Draft((11, 12, 13), (-1, -1, 0), ("x",) * 3)
    (decision,) = runner.step(opened(Sampling(seed=1), tree)).decisions
    for path, said in zip(([], [11], [12], [11, 13]), decision.feedback.topk, strict=True):
        best = oracle_logits(oracle, PROMPT + path)[-1].log_softmax(-1).topk(3)
        assert (said.token, said.best) == ((PROMPT + path)[-1], tuple(best.indices.tolist()))
        nats = [loss * LOSS_NATS for loss in said.losses]
        assert nats == pytest.approx((-best.values).tolist(), abs=LOSS_NATS)


def test_a_branch_is_offered_the_best_next_tokens_and_decides_nothing(directory, tmp_path):
    oracle, runner = save_tiny(tmp_path, "llama"), make_runner(directory)
    sampling = Sampling(temperature=0.0, frequency_penalty=0.7, logit_bias=((4, 2.0),))
    row = branch_row(Branch(group_id=7, candidates=5), sampling)
    tree = Draft((11, 12, 11), (-1, -1, 0), ("x",) * 3)
    (decision,) = runner.step(proposed(row, drafts=[tree])).decisions
    assert (decision.tokens, decision.path) == ((), ())
    for path, offered in zip(([], [11], [12], [11, 11]), decision.options.candidates, strict=True):
        logprobs = oracle_logits(oracle, PROMPT + path)[-1].log_softmax(-1).tolist()
        scores = edited(logprobs, PROMPT, path, sampling)
        best = sorted(range(VOCAB), key=lambda token: -scores[token])[:5]
        assert [token for token, _ in offered] == best
        assert [s for _, s in offered] == pytest.approx([scores[t] for t in best], abs=1e-4)


def test_a_new_branch_copies_its_origin_as_it_was_before_the_round(directory):
    sampling, runner = Sampling(temperature=0.0), make_runner(directory)
    runner.step(opened(sampling, NO_DRAFT))

    def row(sequence_id: int, block: int, token: int, **origin: int) -> Row:
        branch = Branch(group_id=1, candidates=1, **origin)
        named = {"sequence_id": sequence_id, "blocks": (0, block), "new_token_ids": (token,)}
        return make_row(7, 8, branch=branch, **named)

    rows = row(1, 1, 30), row(2, 9, 31, origin=1), row(3, 8, 31, origin=77)
    proposal = proposed(*rows, round_id=1, copies=((1, 9),), finished_ids=(1,))
    decisions = runner.step(proposal).decisions
    assert "never opened" in decisions[0].error  # closed with this round, though copied
    assert "never opened" in decisions[2].error
    assert runner.cached_sequences.sequences[2].tokens == [*PROMPT, 31]
    fresh = make_row(
        0,
        8,
        sequence_id=4,
        blocks=(20, 21),
        new_sequence=NewSequence((*PROMPT, 31), 7, sampling),
        branch=Branch(group_id=4, candidates=1),
    )
    (expected,) = runner.step(proposed(fresh, round_id=2)).decisions
    assert decisions[1].options.candidates[0][0] == pytest.approx(
        expected.options.candidates[0][0], abs=1e-4
    )


def test_slots_are_moved_after_the_copies_and_before_anything_is_written(directory):
    sampling, runner = Sampling(temperature=0.0), make_runner(directory)
    plain = generate(runner, PROMPT, sampling, 4)
    tree = Draft((1, plain[0]), (-1, -1), ("x", "x"))
    runner.step(proposed(branch_row(Branch(group_id=1, candidates=1), sampling), drafts=[tree]))
    # Node 1 is in slot 8, block 2; its place is slot 7, the last of block 1, copied to block 9.
    row = make_row(8, 9, blocks=(0, 9, 10), new_token_ids=(plain[0], plain[1]))
    proposal = proposed(row, round_id=1, copies=((1, 9),), moves=((2 * 4, 9 * 4 + 3),))
    (decision,) = runner.step(proposal).decisions
    assert list(decision.tokens) == plain[2:3]


def test_a_sequence_is_dropped_when_finished_and_replaced_by_a_new_one(directory):
    runner = make_runner(directory)
    sampling = Sampling(temperature=0.0)
    plain = generate(runner, PROMPT, sampling, 6)
    for _ in range(2):  # the second opening stands for a preemption
        (decision,) = runner.step(opened(sampling, NO_DRAFT)).decisions
        assert decision.tokens == (plain[0],)
    runner.step(proposed(round_id=2, finished_ids=(1, 77)))
    assert not runner.cached_sequences.sequences


HOLDING = {"draft_max": 2, "blocks": (0, 1, 2)}
BAD = {
    "never opened": (make_row(0, 1, sequence_id=9, blocks=(5,)), NO_DRAFT, "never opened"),
    "beyond the known": (
        make_row(0, 9, samples=False, blocks=(0, 1, 2)),
        NO_DRAFT,
        "outside its 8 known",
    ),
    "empty": (make_row(3, 3, samples=False, blocks=(0, 1)), NO_DRAFT, "outside its 8 known"),
    "samples too early": (make_row(0, 4, blocks=(0, 1)), NO_DRAFT, "stops at 4"),
    "blocks too few": (
        make_row(7, 8, draft_max=4, blocks=(0, 1)),
        chain((1,), "x"),
        "do not hold 9 slots",
    ),
    "block unknown": (
        make_row(7, 8, draft_max=4, blocks=(0, 1, 999)),
        NO_DRAFT,
        "outside the pages",
    ),
    "draft too long": (
        make_row(7, 8, draft_max=1, blocks=(0, 1, 2)),
        chain((1, 2), "x"),
        "2 drafted nodes",
    ),
    "not sampling": (
        make_row(0, 4, samples=False, draft_max=3, blocks=(0, 1)),
        chain((1,), "x"),
        "1 drafted nodes",
    ),
    "unknown token": (make_row(7, 8, **HOLDING), chain((VOCAB,), "x"), "outside the voc"),
    "parent later": (
        make_row(7, 8, **HOLDING),
        Draft((1, 2), (1, -1), ("x", "x")),
        "before its parent",
    ),
    "parents missing": (make_row(7, 8, **HOLDING), Draft((1, 2), (0,)), "1 parents"),
}


@pytest.mark.parametrize(("bad", "draft", "reason"), BAD.values(), ids=BAD)
def test_a_bad_row_fails_alone(bad: Row, draft: Draft, reason: str, directory):
    runner, sampling = make_runner(directory), Sampling(temperature=0.0)
    plain = generate(runner, PROMPT, sampling, 2)
    runner.step(opened(sampling, NO_DRAFT))
    good = first_row(PROMPT, sampling, sequence_id=2, blocks=(20, 21))
    if bad.sequence_id == 1:
        bad = msgspec.structs.replace(bad, new_token_ids=(plain[0],))
    proposal = proposed(bad, good, drafts=(draft, NO_DRAFT), round_id=1)
    failed, decided = runner.step(proposal).decisions
    assert reason in failed.error
    assert not failed.tokens
    assert decided.tokens == (plain[0],)


def test_the_verdict_carries_the_steps_cost(directory):
    runner = make_runner(directory)
    runner.clock = iter([1.0, 1.0625, 1.1875, 1.25, 1.3125]).__next__
    report = runner.step(opened(Sampling(), chain((1, 2), "x"))).report
    assert (report.device_ms, report.load.tokens) == (250.0, len(PROMPT) + 2)
    assert (report.forward_ms, report.sample_ms, report.head_ms) == (125.0, 62.5, 62.5)
    assert report.begun_s == 1.0
    assert report.busy_ms == 250.0


@pytest.mark.parametrize("continuous", [True, False])
def test_a_gap_lasts_from_a_step_to_the_next_forward_pass_while_there_is_work(
    directory, continuous
):
    runner = make_runner(directory)
    clock = [0.0]

    def tick() -> float:
        clock[0] += 1.0
        return clock[0]

    runner.clock = tick  # begun, laid out, forward, computed, ended
    proposal = opened(Sampling(), NO_DRAFT)
    first = runner.step(proposal).report
    round_ = msgspec.structs.replace(proposal.round, continuous=continuous)
    second = runner.step(msgspec.structs.replace(proposal, round=round_)).report
    assert first.gap_ms is None, "nothing ran before"
    # From 5, the end of the first, to 7, where the second is laid out.
    assert second.gap_ms == (2000.0 if continuous else None)


def branch_row(branch: Branch, sampling: Sampling) -> Row:
    """Return the first row of a branch in blocks 0 .. 4."""
    return first_row(PROMPT, sampling, draft_max=8, blocks=(0, 1, 2, 3, 4), branch=branch)


def opened(sampling: Sampling, draft: Draft, sequence_id: int = 1) -> Proposal:
    """Return a round with one new sequence in blocks 0 .. 4."""
    named = {"sequence_id": sequence_id, "draft_max": 8, "blocks": (0, 1, 2, 3, 4)}
    return proposed(first_row(PROMPT, sampling, **named), drafts=[draft])


def test_hooks_that_no_option_overrides_are_not_called(directory, monkeypatch):
    for hook in ("begin", "lay_out", "prepare", "follow", "report", "draft_next"):
        monkeypatch.setattr(StepOption, hook, Mock(side_effect=AssertionError(hook)))
    runner = make_runner(directory)
    (decision,) = runner.step(opened(Sampling(temperature=0.0), NO_DRAFT)).decisions
    assert decision.tokens
