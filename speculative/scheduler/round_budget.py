"""How many tokens a round may compute, from what was promised and what a step costs.

While texts are decoded, a round is a pause of all of them. So a prompt is read in chunks of

    N = max { n : T(n) <= tpot }

tokens, decoding rows and drafts among them. Reading in small chunks takes longer, as each round
reads all weights; where a prompt's first token would be late with N and not with the largest
round, that one is taken. A prompt that is late either way is read in small chunks: what was
promised to it is broken already, and what was promised to the others need not be.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from draftwerk.slo import Promise
from draftwerk.speculative.drafting.step_cost import StepCost

CHUNK_SHARE = 16
"""Of the largest round, one part in so many is for prompts, however slow steps are: every prompt
is read in the end."""


class UnreadPrompt(NamedTuple):
    """A prompt without a first token yet."""

    arrived_s: float
    unread: int
    """Tokens that are still to be computed."""


class RoundBudget:
    """Chooses the size of each round; pure but for the steps that it learns from."""

    def __init__(self, tokens_max: int, promise: Promise, cost: StepCost) -> None:
        """`tokens_max` is the largest round's."""
        self.tokens_max = tokens_max
        self.promise = promise
        self.cost = cost

    def tokens(self, now_s: float, decoding: int, prompts: Iterable[UnreadPrompt]) -> int:
        """Return how many tokens the round may hold beside `decoding` rows that wait for theirs.

        `prompts` are in the order in which they will be read.
        """
        most = self.tokens_max
        if not decoding or not self.promise.tpot:
            return most
        table = self.cost.table(most)
        within = bisect_right(table, 1e3 * self.promise.tpot, 1, most + 1) - 1
        small = min(most, max(within, decoding + most // CHUNK_SHARE, decoding + 1))
        return most if self._is_saved(now_s, decoding, prompts, table, small) else small

    def _is_saved(
        self,
        now_s: float,
        decoding: int,
        prompts: Iterable[UnreadPrompt],
        table: Sequence[float],
        small: int,
    ) -> bool:
        """Return whether the largest round keeps a promise that a small one would break."""
        if not self.promise.ttft or small == self.tokens_max:
            return False
        ahead = 0
        for prompt in prompts:
            ahead += prompt.unread
            left_s = prompt.arrived_s + self.promise.ttft - now_s
            slow_s, fast_s = (
                1e-3 * table[size] * ahead / (size - decoding) for size in (small, self.tokens_max)
            )
            if fast_s <= left_s < slow_s:
                return True
        return False
