"""Drafts that never come true: what they cost, as a share of the time that all takes."""

import random
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import pytest

from draftwerk.speculative.drafting.proposer import Proposer
from draftwerk.speculative.drafting.rationing import (
    ASK_MS,
    CREDIT,
    PROBED_MAX,
    TOPK_MS,
    VAIN_KEPT,
    VAIN_MIN,
    VAIN_SHARE,
    Candidates,
    DraftRationing,
    Price,
    ProbeBudget,
    paying,
)
from draftwerk.speculative.drafting.savings import SavingsRecord, TextSavings
from draftwerk.speculative.row_parts.feedback import HeadNode
from draftwerk.speculative.sampling import Sampling
from draftwerk.speculative.sources.registry import WITHOUT_MODEL
from tests.speculative.drafting.replay import Recording, Replay, ReplayReport

VOCABULARY = 40_000
LOSSES = (1, 40, 50, 60)
"""Of a guess that is as sure as can be."""
NEVER = VOCABULARY
"""A token that no text has."""


def step_ms(tokens: int) -> float:
    """Return about what a model of 135 M weights takes on two cores."""
    return 5.6 + 0.45 * tokens


def line(fixed_ms: float, row_ms: float) -> Callable[[int], float]:
    return lambda rows: fixed_ms + row_ms * rows


HEADS = {"own": line(0.1, 0.15), "MTP": line(1.0, 0.3), "EAGLE-3": line(4.0, 0.9)}


def guesses(tokens: list[int]) -> HeadNode:
    """Return what a head guesses after some token, as sure of it as can be."""
    return HeadNode(-1, 0, tuple(tokens), LOSSES)


def recordings(count: int, temperature: float, right: float) -> list[Recording]:
    """Return texts of 16 to 256 tokens by chance, whose next token the head guesses so often."""
    rng, found = random.Random(count), list[Recording]()
    for _ in range(count):
        output = rng.choices(range(VOCABULARY), k=rng.choice((16, 32, 64, 128, 256)))
        trees = [
            (guesses([after if rng.random() < right else NEVER, NEVER + 1, NEVER + 2, NEVER + 3]),)
            for _, after in pairwise(output)
        ]
        prompt = tuple(rng.choices(range(VOCABULARY), k=16))
        sampling = Sampling(temperature=temperature)
        found.append(Recording(prompt, tuple(output), sampling=sampling, head_tree=(*trees,)))
    return found


def served(
    rows: int, head: str, texts: list[Recording], before: Sequence[Recording] = ()
) -> tuple[float, ReplayReport]:
    """Return how much longer texts take with drafts than without, and what became of all drafts.

    The server has served those `before`.
    """
    proposer = Proposer((*WITHOUT_MODEL,), [(n, step_ms(n)) for n in (1, 8, 16, 32, 64)])
    kind = partial(Replay, cost=step_ms, topk_ms=TOPK_MS, ask_ms=ASK_MS, head_ms=HEADS[head])
    drafting, plain = kind(proposer), Replay(Proposer(()), step_ms, 0)
    begun_ms, plain_ms = (replay.run(before, rows).ms for replay in (drafting, plain))
    report = drafting.run(texts, rows)
    proposer.check()
    return (report.ms - begun_ms) / (plain.run(texts, rows).ms - plain_ms) - 1.0, report


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("rows", [1, 16, 48])
def test_drafts_of_which_none_is_right_cost_about_one_percent(
    rows: int, head: str, temperature: float
) -> None:
    cost, report = served(rows, head, recordings(max(12, 2 * rows), temperature, right=0.0))
    assert not report.accepted
    assert report.drafting_ms > 0.0, "nothing was probed"
    assert cost < 0.01


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("rows", [1, 4, 16])
def test_drafts_that_are_known_to_be_worthless_cost_less_than_half_a_percent(
    rows: int, head: str
) -> None:
    before, texts = (recordings(count * max(4, rows), 0.0, right=0.0) for count in (5, 6))
    assert sum(len(text.output) for text in before) < 2000 * rows
    cost, report = served(rows, head, texts, before)
    assert not report.accepted
    assert 0.0 < cost < 0.005


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_head_that_is_often_right_gains_in_short_texts(temperature: float) -> None:
    """All but the first texts of a kind begin with it."""
    texts = [text for text in recordings(60, temperature, right=0.7) if len(text.output) <= 64]
    cost, report = served(1, "own", texts)
    assert cost < -0.25
    assert report.accepted > 0.5 * sum(len(text.output) for text in texts) / 1.7


BLOCK = 8


def block_step_ms(tokens: int) -> float:
    """Return about what a model of a billion weights takes on two cores."""
    return 43.0 + 2.7 * (tokens - 1)


def block_recordings(count: int, right: float) -> list[Recording]:
    """Return texts for which a drafter guesses blocks, each token of them right so often."""
    rng, found = random.Random(count), list[Recording]()
    for _ in range(count):
        output = rng.choices(range(VOCABULARY), k=96)
        trees: list[tuple[HeadNode, ...]] = []
        for place in range(1, len(output)):
            block = [t if rng.random() < right else NEVER for t in output[place:][: BLOCK - 1]]
            known = [0, *block]
            trees.append(
                tuple(
                    HeadNode(depth - 1, known[depth], (token, *range(NEVER + 1, NEVER + 4)), LOSSES)
                    for depth, token in enumerate(block)
                )
            )
        prompt = tuple(rng.choices(range(VOCABULARY), k=16))
        found.append(Recording(prompt, tuple(output), head_tree=(*trees, ())))
    return found


@pytest.mark.parametrize(
    ("rows", "row_ms", "right", "gain"),
    [(1, 5, 0.85, 2.2), (1, 20, 0.85, 1.8), (1, 33, 0.85, 1.5), (4, 10, 0.85, 1.15)]
    + [(rows, row_ms, 0.0, 0.97) for rows in (1, 4) for row_ms in (5, 20, 33)],
)
def test_a_drafter_that_takes_most_of_a_step_runs_where_it_pays(
    rows: int, row_ms: float, right: float, gain: float
) -> None:
    """Its first run takes three times as long as others, as on a cold machine."""
    took: list[int] = []

    def head_ms(running: int) -> float:
        took.append(running)
        return row_ms * (1 + running) / 2 * (3 if len(took) == 1 else 1)

    proposer = Proposer(("head",), [(n, block_step_ms(n)) for n in (1, 8, 16, 32)])
    drafting = Replay(proposer, block_step_ms, head_ms=head_ms)
    plain = Replay(Proposer(()), block_step_ms, 0)
    texts = block_recordings(16, right)
    assert plain.run(texts, rows).ms > gain * drafting.run(texts, rows).ms
    proposer.check()


def saving(tokens: float) -> TextSavings:
    text = TextSavings(SavingsRecord())
    text.learn(tokens)
    return text


def test_rows_pay_for_themselves_and_together_for_what_is_fixed() -> None:
    texts = {row: saving(tokens) for row, tokens in enumerate((0.0, 0.2, 0.5, 0.5))}
    assert paying(texts, Price(0.0, 0.3), token_ms=1.0) == {2, 3}
    assert paying(texts, Price(0.3, 0.3), token_ms=1.0) == {2, 3}
    assert paying(texts, Price(0.5, 0.3), token_ms=1.0) == set()
    assert paying(texts, Price(0.5, 0.3), token_ms=4.0) == {1, 2, 3}


def test_sources_are_asked_where_they_save_twice_what_that_takes() -> None:
    rationing = DraftRationing()
    asking, topk = rationing.asking, rationing.topk
    takes = asking.row_ms + topk.fixed_ms + topk.row_ms
    texts = {row: saving(times * takes) for row, times in enumerate((1.5, 2.5))}
    for begun in (True, False):
        found = rationing.choose(Candidates(texts, {}, {}, {}), step_ms=0.0, token_ms=1.0)
        assert found.asked == ({0, 1} if begun else {1})


def test_texts_that_repeat_are_asked_where_a_copy_pays() -> None:
    rationing, texts = DraftRationing(), {row: saving(0.0) for row in range(3)}
    for copies, node_ms, asked in (
        ({}, 0.0, {0, 1, 2}),  # there is time for a probe to begin with
        ({}, 0.0, set[int]()),
        ({0: 0.5, 1: 0.05}, 0.0, {0}),
        ({0: 0.5, 1: 0.05}, 0.5, set[int]()),
    ):
        found = rationing.choose(Candidates(texts, {}, {}, copies), 0.0, 1.0, node_ms)
        assert found.asked == asked


def test_what_a_text_quotes_from_itself_is_copied() -> None:
    """Where quotations are short, and probes are too rare to come upon one."""
    rng, output = random.Random(4), list[int]()
    for _ in range(20):
        output += rng.sample(range(VOCABULARY), 60)
        begin = rng.randrange(len(output) - 30)
        output += output[begin : begin + 30]
    proposer = Proposer((*WITHOUT_MODEL,), [(n, step_ms(n)) for n in (1, 8, 16, 32, 64)])
    proposer._rationing.asking.row_ms = 0.3
    replay = Replay(proposer, step_ms, topk_ms=TOPK_MS, ask_ms=0.3)
    recording = Recording((1, 2, 3), tuple(output), sampling=Sampling(temperature=0.0))
    assert replay.run([recording], 1).rounds < 20 * (60 + 4 + 8)


def test_probes_wait_until_there_is_time_for_several_rows_and_each_has_its_turn() -> None:
    account, price = ProbeBudget(), Price(4.0, 1.0)
    texts = {row: saving(0.0) for row in range(2 * PROBED_MAX)}
    rounds = [account.probed(texts, set(), price, 0.1) for _ in range(4000)]
    assert len(rounds[0]) == PROBED_MAX, "there is time for one to begin with"
    found = [number for number, rows in enumerate(rounds) if rows]
    assert all(not rounds[first] & rounds[second] for first, second in pairwise(found))
    between = [second - first for first, second in pairwise(found)]
    full = price.ms(PROBED_MAX) / 0.1
    parts = [VAIN_SHARE * VAIN_KEPT**times for times in range(len(between))]
    assert between == pytest.approx([full / max(part, VAIN_MIN) for part in parts], abs=2)
    assert parts[-1] < VAIN_MIN
    for part in (VAIN_SHARE, 1.0):
        account.save(part)
        while not account.probed(texts, set(), price, 0.1):
            pass
        assert account.ms == 0.0
        account.save(part)
        rounds = [account.probed(texts, set(), price, 0.1) for _ in range(int(full / part) + 2)]
        assert sum(map(bool, rounds)) == 1


def test_probes_behind_right_guesses_are_on_credit_and_paid_back() -> None:
    account, price, income_ms = ProbeBudget(), Price(0.0, 1.0), 0.01
    probes: list[int] = []
    for number in range(10_000):
        if account.probed({0: saving(0.0)}, set(), price, income_ms):
            probes.append(number)
            account.learn_right()
    assert probes[: 1 + CREDIT] == [*range(1 + CREDIT)]
    paid = VAIN_SHARE * income_ms * 10_000
    assert 0.9 * paid <= len(probes) <= 1 + CREDIT + paid


def test_new_texts_are_asked_at_once_and_what_that_takes_is_paid_back() -> None:
    account, price = ProbeBudget(), Price(0.0, 1.0)
    found: list[set[int]] = []
    for _ in range(1000):
        texts = {row: TextSavings(SavingsRecord()) for row in range(2 * PROBED_MAX)}
        found.append(account.begun(texts, {1}, price))
        assert not account.probed(texts, {*texts}, price, 0.0), "row 1 is asked anyway"
        account.ms += 0.1
    assert found[0] == texts.keys() - {1}
    assert 100 <= sum(map(len, found)) <= 100 + PROBED_MAX + len(texts)
