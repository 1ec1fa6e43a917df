"""How prompts share the tokens that a round reads of them.

A short prompt does not wait for the whole of a long one: the least left to read goes first. So that
none starves for later and shorter ones, a quarter of all reading is done in the order of the queue.
What a round that costs n may read out of that order costs

    x <= (3 n + credit) / 4        credit' = min(credit_max, credit + 3 (n - x) - x)

where the credit is what might have been read out of order before. It lets a newcomer have a whole
round. All is counted in tokens; one behind many others counts as more, by what it costs. A prompt
of `own` unread tokens behind `ahead` others of the queue is read when so many tokens of prompts
were, at the latest:

    4 * (ahead + own) + credit_max + round

Proof: x counts the tokens behind the first prompt that a round does not finish. So each round
before its last gives n - x or more to the queue up to this prompt. These are less than
`ahead + own` in all; the sum of x is at most three times that and the credit at first. Then comes
one round.

Out of order, the more urgent priority goes first, then what is due soon, then the least left.
"""

from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from draftwerk.speculative.costs.work import StepLoad

DUE_SOON_S = 6.4
"""A first token that is due within this time is read before what is not: as many rounds as one
without a promise waits for those that have one, at 50 ms each."""
OVERTAKING = 3.0
"""The cost of what may be read out of order for each unit of cost in order."""
CREDIT_ROUNDS = 2
"""The number of the largest rounds that the credit holds at most."""


class UnreadPrompt(NamedTuple):
    """A prompt that is read, or waits to be."""

    due_s: float
    """When its first token is due; infinite if nothing was promised."""
    unread: int
    """Tokens that are still to be computed."""
    start: int = 0
    """Tokens before those."""
    priority: int = 0
    """Lower is sooner."""
    rank: int = 0
    """It is read as early as a prompt with so many tokens left, which waits for what this one
    reads; 0 if none does."""
    weight: float = 1.0
    """The cost of one of its tokens, in tokens behind no others."""


Counts = dict[int, int]
"""Tokens of a round by prompt, which is its place in the line; none has zero."""


class PromptQueue:
    """The prompts that may be read in a round, in the order of the queue."""

    def __init__(
        self, prompts: Sequence[UnreadPrompt], now_s: float = 0.0, credit: float | None = None
    ) -> None:
        """Without a credit, all of them are read in order."""
        self.prompts = prompts
        self.unread = sum(prompt.unread for prompt in prompts)
        self.credit = credit
        self._shortest_first: list[int] = []
        if credit is not None:
            ranks = [rank(prompt, now_s) for prompt in prompts]
            self._shortest_first = sorted(range(len(prompts)), key=ranks.__getitem__)

    def shares(self, count: int) -> Counts:
        """Return what each prompt has of a round that reads `count` tokens."""
        if count >= self.unread:
            return {index: prompt.unread for index, prompt in enumerate(self.prompts)}
        if self.credit is None:
            return self._shares(count, 0)
        low, high = 0, count
        while low < high:
            middle = (low + high + 1) // 2
            shares = self._shares(count, middle)
            if self.credit + balance(self.cost(shares), self.overtaking(shares, shares)) >= 0.0:
                low = middle
            else:
                high = middle - 1
        return self._shares(count, low)

    def _shares(self, count: int, free: int) -> Counts:
        """Return shares of which `free` tokens go to the shortest, and the others to the first."""
        counts: Counts = {}
        for order, left in ((range(len(self.prompts)), count - free), (self._shortest_first, free)):
            for index in order:
                if left <= 0:
                    break
                had = counts.get(index, 0)
                more = min(left, self.prompts[index].unread - had)
                if more:
                    counts[index] = had + more
                    left -= more
        return counts

    def cost(self, used: Counts) -> float:
        """Return what reading costs."""
        return sum(count * self.prompts[index].weight for index, count in used.items())

    def overtaking(self, shares: Counts, used: Counts) -> float:
        """Return what was read before others that stand ahead, of the shares that were used: what
        is behind the first prompt that is not finished, and could be read."""
        for index, prompt in enumerate(self.prompts):
            count = used.get(index, 0)
            if count < prompt.unread and count >= shares.get(index, 0):
                return self.cost({place: n for place, n in used.items() if place > index})
        return 0.0

    def load(self, load: StepLoad, count: int) -> StepLoad:
        """Return a step's load with so many tokens of these prompts."""
        for index, share in self.shares(count).items():
            prompt = self.prompts[index]
            load = load.with_row(prompt.start, share, int(share == prompt.unread))
        return load

    def finished(self, count: int) -> list[UnreadPrompt]:
        """Return the prompts whose rest is read in a round of so many tokens."""
        shares = self.shares(count).items()
        return [self.prompts[i] for i, share in shares if share == self.prompts[i].unread]


def rank(prompt: UnreadPrompt, now_s: float) -> tuple[int, float, int]:
    """Return what orders the prompts that are read out of the order of the queue."""
    is_due = now_s <= prompt.due_s <= now_s + DUE_SOON_S
    return prompt.priority, prompt.due_s if is_due else inf, prompt.rank or prompt.unread


def balance(cost: float, overtaking: float) -> float:
    """Return what a round adds to the credit; below 0, it needs so much of it."""
    return OVERTAKING * (cost - overtaking) - overtaking


def next_credit(credit: float, cost: float, overtaking: float, tokens_max: int) -> float:
    """Return the credit after a round of such a cost, a part of it out of order.

    It is none where those in order could not be read for want of room.
    """
    return max(0.0, min(float(CREDIT_ROUNDS * tokens_max), credit + balance(cost, overtaking)))


def tokens_bound(ahead: float, own: float, round_cost: float, tokens_max: int) -> float:
    """Return after how many tokens of prompts one has been read at the latest.

    `ahead` are unread tokens before it in the queue, `round_cost` is that of its last round, and
    `tokens_max` are the tokens of the largest round.
    """
    return (1.0 + OVERTAKING) * (ahead + own) + CREDIT_ROUNDS * tokens_max + round_cost
