"""Prompts share rounds: the shortest goes first, and none starves."""

from math import inf
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from draftwerk.speculative.options.service.prompt_shares import (
    CREDIT_ROUNDS,
    DUE_SOON_S,
    PromptQueue,
    UnreadPrompt,
    next_credit,
    tokens_bound,
)

ROUND = 256
LONG = UnreadPrompt(inf, 6000)


def prompt(unread: int, due_s: float = inf, priority: int = 0, rank: int = 0) -> UnreadPrompt:
    return UnreadPrompt(due_s, unread, priority=priority, rank=rank)


def counts(prompts: list[UnreadPrompt], credit: int | None = 0, room: int = ROUND) -> list[int]:
    shares = PromptQueue(prompts, 0.0, credit).shares(room)
    return [shares.get(index, 0) for index in range(len(prompts))]


def test_a_short_prompt_enters_the_round_and_the_long_one_has_the_rest() -> None:
    assert counts([LONG, prompt(10)]) == [246, 10]
    assert counts([LONG, prompt(100), prompt(20)]) == [136, 100, 20]


def test_a_quarter_is_read_in_order_unless_there_is_credit() -> None:
    short = [prompt(100), prompt(90), prompt(80)]
    assert counts([LONG, *short]) == [64, 22, 90, 80]
    assert counts([LONG, *short], credit=ROUND) == [0, 86, 90, 80]
    assert counts([LONG, prompt(250)], credit=ROUND) == [6, 250]


def test_without_shares_prompts_are_read_in_order() -> None:
    assert counts([prompt(100), prompt(90), prompt(80)], credit=None) == [100, 90, 66]


def test_the_more_urgent_goes_first_then_what_is_due_soon_then_the_shortest() -> None:
    urgent, due = prompt(60, priority=-1), prompt(40, due_s=1.0)
    line = [LONG, prompt(30), due, urgent]
    assert counts(line, room=120) == [30, 0, 30, 60]
    assert counts(line, credit=80, room=120) == [10, 10, 40, 60]
    late, far = prompt(40, due_s=-1.0), prompt(40, due_s=DUE_SOON_S + 1)
    assert counts([LONG, late, far, prompt(30)], room=60) == [15, 15, 0, 30]


def test_one_that_a_shorter_one_waits_for_is_read_as_early_as_that() -> None:
    assert counts([LONG, prompt(500), prompt(40)], room=60) == [15, 5, 40]
    assert counts([LONG, prompt(500, rank=20), prompt(40)], room=60) == [15, 45, 0]


@given(
    unread=st.lists(st.tuples(st.integers(1, 700), st.floats(1.0, 5.0)), max_size=12),
    room=st.integers(1, 600),
    credit=st.one_of(st.none(), st.floats(0.0, 512.0)),
)
def test_every_token_of_a_round_is_used_and_a_quarter_of_the_cost_is_in_order(
    unread: list[tuple[int, float]], room: int, credit: float | None
) -> None:
    prompts = [UnreadPrompt(inf, count, weight=weight) for count, weight in unread]
    line = PromptQueue(prompts, 0.0, credit)
    shares = line.shares(room)
    assert sum(shares.values()) == min(room, line.unread)
    assert all(0 < count <= prompts[index].unread for index, count in shares.items())
    overtaking = line.overtaking(shares, shares)
    assert 4 * overtaking <= 3 * line.cost(shares) + (credit or 0.0) + 1e-6
    # Any first part of the queue has what is read in order, or is finished.
    for stop in range(len(prompts) + 1):
        first = {index: count for index, count in shares.items() if index < stop}
        if sum(first.values()) < sum(prompt.unread for prompt in prompts[:stop]):
            assert line.cost(first) >= line.cost(shares) - overtaking - 1e-6


class Waiting:
    """A prompt of a random life: its tokens cost more the more of them were read."""

    def __init__(self, own: int) -> None:
        self.own = self.unread = own
        self.bound = inf

    @property
    def prompt(self) -> UnreadPrompt:
        start = self.own - self.unread
        return UnreadPrompt(inf, self.unread, start, weight=1.0 + start / 1000)

    @property
    def cost(self) -> float:
        """What the rest costs at most."""
        return self.unread * (1.0 + self.own / 1000)


def read_in_random_rounds(seed: int, rounds: int = 120) -> int:
    """Serve random arrivals, short ones above all, in rounds of random sizes; returns how many
    prompts were read, each within its bound."""
    rng, clock, done = Random(seed), 0.0, 0
    credit = (0.0, ROUND, CREDIT_ROUNDS * ROUND)[seed % 3]
    queue: list[Waiting] = []
    flood = rng.choice([0.2, 1.0, 4.0])
    for number in range(rounds):
        for _ in range(1 if number == 3 else int(rng.expovariate(1 / flood))):
            own = 4000 if number == 3 else rng.choice([5, 40, 200, rng.randint(1, 2000)])
            queue.append(Waiting(own))
            ahead = sum(each.cost for each in queue[:-1])
            last = ROUND * 5.0
            queue[-1].bound = clock + tokens_bound(ahead, queue[-1].cost, last, ROUND)
        line = PromptQueue([each.prompt for each in queue], 0.0, credit)
        shares = line.shares(rng.choice([ROUND, ROUND, rng.randint(1, ROUND)]))
        clock += line.cost(shares)
        credit = next_credit(credit, line.cost(shares), line.overtaking(shares, shares), ROUND)
        for index, count in shares.items():
            queue[index].unread -= count
        assert all(clock <= each.bound for each in queue), "a prompt starves"
        done += sum(not each.unread for each in queue)
        queue = [each for each in queue if each.unread]
    return done


def test_no_prompt_starves_whatever_comes_after_it() -> None:
    assert sum(read_in_random_rounds(seed) for seed in range(20)) > 300


def test_the_credit_of_quiet_times_has_an_end() -> None:
    credit = 0.0
    for _ in range(100):
        credit = next_credit(credit, ROUND, 0.0, ROUND)
    assert credit == CREDIT_ROUNDS * ROUND
