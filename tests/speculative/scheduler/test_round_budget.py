"""How large a round may be, from what was promised and what steps cost."""

from hypothesis import given
from hypothesis import strategies as st

from draftwerk.slo import Promise
from draftwerk.speculative.drafting.step_cost import StepCost
from draftwerk.speculative.scheduler.round_budget import CHUNK_SHARE, RoundBudget, UnreadPrompt

MOST = 256
STEPS = tuple((tokens, 4.0 + 0.5 * tokens) for tokens in (1, 16, 64, 256))
"""A step over 92 tokens takes 50 ms, one over 256 takes 132."""


def budget(**promise: float) -> RoundBudget:
    return RoundBudget(MOST, Promise(**promise), StepCost(STEPS))


def test_without_a_promise_a_round_is_as_large_as_it_may_be() -> None:
    assert budget().tokens(0.0, 16, []) == MOST
    assert budget(ttft=0.1).tokens(0.0, 16, [UnreadPrompt(0.0, 900)]) == MOST


def test_a_round_that_no_text_waits_for_is_as_large_as_it_may_be() -> None:
    assert budget(tpot=0.05).tokens(0.0, 0, []) == MOST


def test_a_round_takes_no_longer_than_readers_were_promised() -> None:
    assert budget(tpot=0.05).tokens(0.0, 16, []) == 92


def test_every_round_reads_something_however_slow_steps_are() -> None:
    assert budget(tpot=0.001).tokens(0.0, 64, []) == 64 + MOST // CHUNK_SHARE
    assert RoundBudget(8, Promise(tpot=0.001), StepCost(STEPS)).tokens(0.0, 3, []) == 4


def test_a_first_token_in_danger_takes_the_largest_round() -> None:
    both = budget(ttft=1.0, tpot=0.05)
    # 900 tokens in chunks of 92 - 16 take 592 ms, in the largest rounds 495 ms.
    prompt = UnreadPrompt(0.0, 900)
    assert both.tokens(0.30, 16, [prompt]) == 92, "it is in time as it is"
    assert both.tokens(0.45, 16, [prompt]) == MOST
    assert both.tokens(0.60, 16, [prompt]) == 92, "it is late either way"


def test_a_prompt_waits_for_those_before_it() -> None:
    both = budget(ttft=1.0, tpot=0.05)
    first, second = UnreadPrompt(0.0, 300), UnreadPrompt(0.0, 600)
    assert both.tokens(0.45, 16, [first]) == 92
    assert both.tokens(0.45, 16, [first, second]) == MOST


@given(
    tpot=st.floats(0.0001, 1.0),
    ttft=st.floats(0.0, 5.0),
    now=st.floats(0.0, 10.0),
    decoding=st.integers(0, 64),
    prompts=st.lists(st.tuples(st.floats(0.0, 10.0), st.integers(1, 4000)), max_size=5),
)
def test_a_round_is_within_its_bounds(
    tpot: float,
    ttft: float,
    now: float,
    decoding: int,
    prompts: list[tuple[float, int]],
) -> None:
    chooses = budget(ttft=ttft, tpot=tpot)
    tokens = chooses.tokens(now, decoding, [UnreadPrompt(*prompt) for prompt in prompts])
    assert decoding < tokens <= MOST
    least = decoding + MOST // CHUNK_SHARE
    if decoding and least < tokens < MOST:
        assert chooses.cost.table(MOST)[tokens] <= 1e3 * tpot
