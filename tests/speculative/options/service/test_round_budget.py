"""How large a round may be, from what was promised and what steps cost."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.costs.roofline import Roofline
from draftwerk.speculative.costs.step_cost import StepCost
from draftwerk.speculative.costs.work import NO_LOAD, StepLoad
from draftwerk.speculative.options.service.prompt_shares import PromptQueue, UnreadPrompt
from draftwerk.speculative.options.service.round_budget import (
    CHUNK_MIN,
    STEPS_OF_PAUSE,
    TIME_SHARE,
    DecodingRows,
    RoundBudget,
)
from tests.speculative.costs.test_step_cost import ROOFLINE

MOST = 256
STEPS = tuple((tokens, 4.0 + 0.5 * tokens) for tokens in (1, 16, 64, 256))
"""A step over 92 tokens takes 50 ms, one over 256 takes 132."""
LONG = UnreadPrompt(inf, 2000)


def budget(tokens_max: int = MOST, roofline: Roofline | None = None) -> RoundBudget:
    return RoundBudget(tokens_max, StepCost(STEPS, roofline))


def rows(count: int, tpot_s: float = inf, spare_s: float = 0.0, context: int = 1) -> DecodingRows:
    load = NO_LOAD
    for _ in range(count):
        load = load.with_row(context, 1, 1)
    return DecodingRows(count, load, tpot_s, spare_s)


def test_without_a_promise_a_round_is_as_large_as_it_may_be() -> None:
    assert budget().tokens(0.0, rows(16), PromptQueue([])) == MOST
    assert budget().tokens(0.0, rows(16), PromptQueue([UnreadPrompt(0.1, 900)])) == MOST


def test_no_text_pauses_longer_for_prompts_than_the_bound() -> None:
    chooses = RoundBudget(MOST, StepCost(STEPS), pause_s=0.05)
    assert chooses.tokens(0.0, rows(16), PromptQueue([LONG])) == 92
    assert chooses.tokens(0.0, rows(16), PromptQueue([])) == MOST, "drafts alone are no pause"
    assert chooses.tokens(0.0, rows(0), PromptQueue([LONG])) == MOST, "no text waits"
    assert chooses.tokens(0.0, rows(16, 0.02), PromptQueue([LONG])) == 32, (
        "a stricter promise rules"
    )
    assert chooses.tokens(0.0, rows(16, 0.08), PromptQueue([LONG])) == 92, "a milder one does not"
    in_danger = [UnreadPrompt(1.0, 900)]
    assert chooses.tokens(0.4, rows(32, 0.05, spare_s=0.2), PromptQueue(in_danger)) == 92
    # A round of 64 texts takes 36 ms: twice that is longer than the bound, and holds 136 tokens.
    assert chooses.tokens(0.0, rows(64), PromptQueue([LONG])) == 136
    assert chooses.pace(rows(16), PromptQueue([LONG])).chunk == 76


def test_a_first_token_waits_for_no_more_of_other_prompts_than_a_text_does() -> None:
    chooses, short = RoundBudget(MOST, StepCost(STEPS), pause_s=0.05), UnreadPrompt(inf, 10)
    assert chooses.tokens(0.0, rows(0), PromptQueue([LONG, short], 0.0, 0.0)) == 92
    assert chooses.tokens(0.0, rows(0), PromptQueue([short, LONG])) == 92
    assert chooses.tokens(0.0, rows(0), PromptQueue([LONG, short])) == MOST, "it is read in order"
    # Forty of ten tokens fill a round that all its first tokens need.
    assert chooses.tokens(0.0, rows(0), PromptQueue([short] * 40)) == MOST
    long_first = UnreadPrompt(inf, 90)
    assert chooses.tokens(0.0, rows(0), PromptQueue([long_first, LONG])) == 188


def test_a_round_that_no_text_waits_for_is_as_large_as_it_may_be() -> None:
    assert budget().tokens(0.0, rows(0, 0.05), PromptQueue([])) == MOST


def test_a_round_takes_no_longer_than_readers_were_promised() -> None:
    assert budget().tokens(0.0, rows(16, 0.05), PromptQueue([LONG])) == 92
    assert budget().tokens(0.0, rows(16, 0.05), PromptQueue([])) == 92


def test_a_token_without_logits_costs_less() -> None:
    chooses = budget(roofline=ROOFLINE)
    read = chooses.tokens(0.0, rows(16, 0.05), PromptQueue([LONG]))
    drafted = chooses.tokens(0.0, rows(16, 0.05), PromptQueue([]))
    assert read > drafted
    load = rows(16).load
    for start, count, outputs in ((0, read - 16, 0), (0, drafted - 16, drafted - 16)):
        assert chooses.cost.ms(load.with_row(start, count, outputs)) <= 50.0
        more = load.with_row(start, count + 1, outputs and outputs + 1)
        assert chooses.cost.ms(more) > 50.0


def test_long_contexts_leave_less_room() -> None:
    chooses = budget(roofline=ROOFLINE)
    near = chooses.tokens(0.0, rows(16, 0.05, context=1), PromptQueue([LONG]))
    far = chooses.tokens(0.0, rows(16, 0.05, context=8000), PromptQueue([LONG]))
    assert far < near


def test_each_prompt_of_a_round_is_priced_where_it_stands() -> None:
    chooses = budget(roofline=ROOFLINE)
    texts = rows(8, 0.05)
    for prompts in (
        [UnreadPrompt(inf, 20, 100), UnreadPrompt(inf, 900, 3000)],
        [UnreadPrompt(inf, 9, 2000), UnreadPrompt(inf, 5), UnreadPrompt(inf, 900, 50)],
    ):
        *short, (_, _, start, *_) = prompts
        load = texts.load
        for prompt in short:
            load = load.with_row(prompt.start, prompt.unread, 1)
        count = chooses.tokens(0.0, texts, PromptQueue(prompts)) - load.tokens
        assert 0 < count < 900, "the last one is cut"
        assert chooses.cost.ms(load.with_row(start, count, 0)) <= 50.0
        assert chooses.cost.ms(load.with_row(start, count + 1, 0)) > 50.0


def test_drafts_are_priced_behind_their_texts() -> None:
    chooses = budget(roofline=ROOFLINE)
    texts = rows(2, 0.05, context=2000)
    drafted = chooses.tokens(0.0, texts, PromptQueue([])) - 2
    assert drafted > CHUNK_MIN
    assert chooses.cost.ms(texts.load.with_row(2000, drafted, drafted)) <= 50.0
    assert chooses.cost.ms(texts.load.with_row(2000, drafted + 1, drafted + 1)) > 50.0


def test_every_round_reads_something_however_slow_steps_are() -> None:
    # A round of 64 texts takes 36 ms, an eighth of 41.
    assert budget().tokens(0.0, rows(64, 0.001), PromptQueue([LONG])) == 64 + 10
    assert budget(8).tokens(0.0, rows(3, 0.001), PromptQueue([LONG])) == 7


@given(behind=st.integers(0, 100_000), count=st.integers(1, 40), context=st.integers(1, 4000))
def test_a_chunk_is_as_long_as_the_pause_leaves_room_behind_any_context(
    behind: int, count: int, context: int
) -> None:
    chooses = RoundBudget(MOST, StepCost(STEPS, ROOFLINE), pause_s=0.05)
    texts, line = rows(count, context=context), PromptQueue([UnreadPrompt(inf, 5000, behind)])
    chunk = chooses.tokens(0.0, texts, line) - count
    alone_ms = chooses.cost.ms(texts.load)
    pause_ms = max(50.0, STEPS_OF_PAUSE * alone_ms) + 1e-6
    ms = [chooses.cost.ms(line.load(texts.load, tokens)) for tokens in (chunk, chunk + 1)]
    assert chunk == CHUNK_MIN or ms[0] <= pause_ms
    assert ms[1] > pause_ms or chunk + count == MOST, "so prompts have half of the time"


def test_a_first_token_in_danger_takes_as_long_a_round_as_the_texts_can_afford() -> None:
    # 900 tokens in chunks of 92 - 32 take 750 ms, in the largest rounds 530 ms.
    prompt = [UnreadPrompt(1.0, 900)]
    ahead = rows(32, 0.05, spare_s=0.2)
    assert budget().tokens(0.20, ahead, PromptQueue(prompt)) == 92, "it is in time as it is"
    assert budget().tokens(0.40, ahead, PromptQueue(prompt)) == MOST
    assert budget().tokens(0.60, ahead, PromptQueue(prompt)) == 92, "it is late either way"
    assert budget().tokens(0.40, rows(32, 0.05), PromptQueue(prompt)) == 92, (
        "their own tokens would be late"
    )
    some = rows(32, 0.05, spare_s=0.05)
    assert budget().tokens(0.40, some, PromptQueue(prompt)) == 192, "a step of 100 ms"


def test_texts_are_not_paused_where_it_saves_little() -> None:
    # As above, but in small chunks they take 592 ms, and in the largest rounds 495 ms.
    assert (
        budget().tokens(0.45, rows(16, 0.05, spare_s=0.2), PromptQueue([UnreadPrompt(1.0, 900)]))
        == 92
    )


def test_a_prompt_waits_for_those_before_it() -> None:
    first, second = UnreadPrompt(1.0, 300), UnreadPrompt(1.0, 600)
    ahead = rows(32, 0.05, spare_s=0.2)
    assert budget().tokens(0.40, ahead, PromptQueue([first])) == 92
    assert budget().tokens(0.40, ahead, PromptQueue([first, second])) == MOST


def test_a_prompt_takes_as_long_as_the_rounds_that_read_it() -> None:
    beside = budget().pace(rows(16, 0.05), PromptQueue([LONG]))
    assert beside.read_s(0, 760) == pytest.approx(10 * 0.05), "ten rounds"
    # The step of an empty round is as long as one of a single token.
    assert budget().pace(rows(0), PromptQueue([LONG])).read_s(0, 2560) == pytest.approx(1.3245)


def test_tokens_behind_many_others_take_longer() -> None:
    pace = budget(roofline=ROOFLINE).pace(rows(4, 0.05), PromptQueue([LONG]))
    assert pace.read_s(0, 900) < pace.read_s(900, 900) < pace.read_s(0, 1800)


@given(
    tpot=st.floats(0.0001, 1.0),
    spare=st.floats(0.0, 1.0),
    now=st.floats(0.0, 10.0),
    decoding=st.integers(0, 64),
    prompts=st.lists(st.tuples(st.floats(0.0, 10.0), st.integers(1, 4000)), max_size=5),
)
def test_a_round_is_within_its_bounds(
    tpot: float,
    spare: float,
    now: float,
    decoding: int,
    prompts: list[tuple[float, int]],
) -> None:
    chooses = budget()
    unread = [UnreadPrompt(*prompt) for prompt in prompts]
    tokens = chooses.tokens(now, rows(decoding, tpot, spare), PromptQueue(unread))
    assert decoding < tokens <= MOST
    if decoding and decoding + CHUNK_MIN < tokens < MOST:
        least_ms = TIME_SHARE / (TIME_SHARE - 1) * chooses.cost.ms(rows(decoding).load)
        limit_ms = max(1e3 * (tpot + spare), least_ms)
        assert chooses.cost.ms(StepLoad(tokens, tokens)) <= limit_ms + 1e-6
