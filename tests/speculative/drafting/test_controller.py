"""The controller in simulation: it spends where it pays, and nothing where it does not."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draftwerk.speculative.costs.work import StepLoad
from draftwerk.speculative.drafting.controller import Controller, RoundLoad, RowTree
from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.sources.acceptance import (
    AcceptanceStats,
    SequenceAcceptance,
    kind,
)
from draftwerk.speculative.sources.registry import NUMBERS, PRIORS
from draftwerk.speculative.sources.tree import DraftTree
from tests.speculative.costs.test_step_cost import ROOFLINE
from tests.speculative.drafting.replay import Recording, Replay, ReplayReport


def flat(tokens: int) -> float:
    return 20.0 + 0.1 * tokens


def steep(tokens: int) -> float:
    return 2.0 + 1.0 * tokens


def loop(length: int) -> Recording:
    """Return a text that repeats itself."""
    pattern = [7, 3, 9, 4, 8, 5]
    return Recording(tuple(pattern * 3), tuple((pattern * length)[:length]))


def treacherous(rng: random.Random, length: int) -> Recording:
    """Return a text in which every pair comes again, and never goes on as before."""
    text: list[int] = []
    after: dict[tuple[int, int], set[int]] = {}
    while len(text) < length + 40:
        used = after.setdefault((text[-2], text[-1]) if len(text) > 1 else (0, 0), set())
        token = rng.choice([t for t in range(1, 40) if t not in used] or [0])
        used.add(token)
        text.append(token)
    return Recording(tuple(text[:40]), tuple(text[40:]))


def speed_up(
    recordings: list[Recording],
    cost: Callable[[int], float],
    rows: int,
    *,
    seeded: bool = True,
    methods: tuple[str, ...] = ("ngram", "suffix", "store", "recycle"),
) -> tuple[float, ReplayReport]:
    """Return how much faster the recordings play with drafts, and what became of the drafts."""
    measured = [(n, cost(n)) for n in (1, 8, 16, 32, 64)] if seeded else []
    proposer = Proposer(methods, measured)
    report = Replay(proposer, cost).run(recordings, rows)
    proposer.check()
    plain = Replay(Proposer(()), cost, 0).run(recordings, rows)
    assert report.tokens == plain.tokens
    return plain.ms / report.ms, report


@pytest.mark.parametrize("seeded", [True, False])
def test_where_every_guess_is_right_drafts_are_long(seeded: bool) -> None:
    gain, report = speed_up([loop(400)] * 4, flat, 2, seeded=seeded)
    assert report.tokens_per_row > 10
    assert gain > 7


@pytest.mark.parametrize(
    ("cost", "rows", "seeded"),
    [
        *[(flat, 1, True), (flat, 4, False), (flat, 16, True)],
        *[(steep, 1, False), (steep, 4, True), (steep, 16, False)],
    ],
)
def test_where_every_guess_is_wrong_drafts_cost_nothing(
    cost: Callable[[int], float], rows: int, seeded: bool
) -> None:
    rng = random.Random(1)
    gain, _ = speed_up([treacherous(rng, 300) for _ in range(16)], cost, rows, seeded=seeded)
    assert gain > 0.98


@pytest.mark.parametrize("seeded", [True, False])
def test_where_every_guess_is_wrong_drafting_stops_for_good(seeded: bool) -> None:
    _, report = speed_up([treacherous(random.Random(1), 2000)], steep, 1, seeded=seeded)
    assert report.drafted < 40


def test_a_device_that_is_full_gets_no_drafts_however_good() -> None:
    gain, report = speed_up([loop(200)] * 64, lambda n: 1.0 * n, 32)
    assert gain > 0.98
    assert report.drafted < 0.1 * report.tokens


def test_one_row_is_drafted_though_the_others_cannot_be() -> None:
    rng = random.Random(2)
    recordings = [loop(600), *(treacherous(rng, 600) for _ in range(7))]
    _, report = speed_up(recordings, flat, 8)
    assert report.accepted > 400
    assert report.accepted > 0.5 * report.drafted


@dataclass
class DraftModel:
    """Is right with a fixed chance at each token."""

    rng: random.Random
    chance: float
    asked: int = 0

    def __call__(self, recording: Recording, said: int, length: int) -> tuple[int, ...]:
        self.asked += length > 0
        truth = recording.output[said : said + length]
        return tuple(t if self.rng.random() < self.chance else 999 for t in truth)


def with_model(
    chance: float, model_ms: float, read_ms: float = 0.0, prompt: int = 2
) -> tuple[float, ReplayReport, DraftModel]:
    recordings = [
        Recording((1,) * prompt, tuple(random.Random(n).choices(range(10**6), k=400)))
        for n in range(4)
    ]
    model = DraftModel(random.Random(0), chance)
    proposer = Proposer(("ngram",), [(n, flat(n)) for n in (1, 8, 16, 32)])
    replay = Replay(proposer, flat, model=model, model_ms=model_ms, model_read_ms=read_ms)
    report = replay.run(recordings, 1)
    plain = Replay(Proposer(()), flat, 0).run(recordings, 1)
    return plain.ms / report.ms, report, model


@pytest.mark.parametrize(
    ("read_ms", "prompt", "least"),
    [(0.0, 2, 3), (1.0, 400, 2)],
    ids=["alone", "it reads first"],
)
def test_a_good_draft_model_is_asked_for_much(read_ms: float, prompt: int, least: float) -> None:
    gain, report, _ = with_model(0.9, 1.0, read_ms, prompt)
    assert gain > least
    assert report.drafted / report.rows > 5


def test_a_draft_model_that_reads_much_in_every_round_is_only_probed() -> None:
    controller = Controller([(n, 10.0) for n in (1, 8, 16)])
    asked = 0
    for _ in range(400):
        tree = RowTree(
            DraftTree(controller.acceptance(False), SequenceAcceptance()), SequenceAcceptance(), 7
        )
        if controller.model_lengths([tree], RoundLoad(1, 1, 7))[0]:
            asked += 1
            controller.learn_model(2, 50.0, unread=300)
    assert 0 < asked < 40


@pytest.mark.parametrize(
    ("chance", "model_ms"), [(0.5, 19.0), (0.0, 2.0)], ids=["too dear", "never right"]
)
def test_a_draft_model_that_does_not_pay_is_only_probed(chance: float, model_ms: float) -> None:
    gain, report, model = with_model(chance, model_ms)
    assert gain > 0.97
    assert 0 < model.asked < 0.1 * report.rows


@given(st.lists(st.integers(1, 5000), min_size=2, max_size=16), st.sampled_from([flat, steep]))
def test_a_token_is_worth_the_time_that_its_row_would_have_taken(
    contexts: list[int], cost: Callable[[int], float]
) -> None:
    count = len(contexts)
    controller = Controller([(n, cost(n)) for n in range(1, 17)], ROOFLINE)
    load = StepLoad(count, count, sum(contexts), sum(contexts))
    weights = controller.token_weights([9] * count, contexts, 1.0, load)
    whole, products = controller.cost.ms(load), controller.cost.table(count)[count]
    for weight, context in zip(weights, contexts, strict=True):
        own = controller.cost.context_ms(StepLoad(1, 1, context, context))
        assert weight * whole / count == pytest.approx(products / count + own)


@settings(max_examples=20)
@given(st.floats(0.0, 1.0))
def test_survival_finds_the_true_chance(chance: float) -> None:
    rng = random.Random(0)
    acceptance = AcceptanceStats(PRIORS)
    cell = kind(NUMBERS["ngram"], 2) + 3
    for _ in range(600):
        acceptance.learn(cell, rng.random() < chance)
    assert acceptance.chances[cell] == pytest.approx(chance, abs=0.1)
    acceptance.check()


def test_acceptance_of_one_source_leaves_another_alone() -> None:
    sequence_acceptance, ngram = SequenceAcceptance(), NUMBERS["ngram"]
    for _ in range(60):
        sequence_acceptance.learn(ngram, 0.8, 0)
    assert sequence_acceptance.factors[ngram] < 0.2
    assert all(factor == 1.0 for n, factor in enumerate(sequence_acceptance.factors) if n != ngram)
    for _ in range(60):
        sequence_acceptance.learn(ngram, 0.8, 1)
    assert sequence_acceptance.factors[ngram] > 0.9
