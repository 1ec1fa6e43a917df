"""Per-row weight of a token when drafts are chosen; the row with most tokens left weighs most.

A row that ends takes its own part of later steps' cost away. A step's fixed part goes away only
with the last row, unless a waiting request replaces a row that ends. So, where no request waits,
drafts for the row that is furthest behind weigh more than those for rows that are ahead: with many
rows, a draft that only lets an easy text end early costs the others more than it saves them.

Minimised is the sum of w_i * F_i, where F_i is when row i ends and n rows run:
    w_i = own_share / n + (1 - own_share) * (mean / n + (1 - mean) * P(row i is last)).
A token more brings F_i forward by one step's worth whichever row it is, so row i's token weighs
n * w_i. P(row i is last) is a softmax of the tokens left, as wide as they are uncertain.
"""

from collections.abc import Sequence
from math import exp

MEAN_SHARE = 0.1
"""How much the mean row's end counts beside the last row's, where no request replaces one."""
SPREAD = 0.07
"""How uncertain it is which row will be last, as a share of the most tokens left."""
MEMORY = 0.9
"""Weight of what is known when one more row ends."""


class Occupancy:
    """Share of ended rows that are replaced by waiting requests."""

    def __init__(self) -> None:
        self._share = 0.0
        self._vacant = 0

    def ended(self, running: int) -> None:
        """Count a row that ended and left `running` others."""
        self._share *= MEMORY
        self._vacant = self._vacant + 1 if running else 0

    def started(self) -> None:
        """Count a row that began, perhaps in another's place."""
        if self._vacant:
            self._vacant -= 1
            self._share += 1 - MEMORY

    def share(self, waiting: int) -> float:
        """Return the share of ended rows whose place is taken, 0 .. 1; all while any wait."""
        return 1.0 if waiting else min(self._share, 1.0)


def token_weights(tokens_left: Sequence[int], occupancy: float, own_share: float) -> list[float]:
    """Return the weight of a token of each row; the mean is 1.

    `tokens_left` are the tokens that each row may still generate, `occupancy` is the share of ended
    rows whose place is taken, and `own_share` is how much of a step's cost its rows account for,
    the rest being fixed.
    """
    count = len(tokens_left)
    mean = occupancy + (1.0 - occupancy) * MEAN_SHARE
    if count < 2 or mean == 1.0:
        return [1.0] * count
    longest = max(tokens_left)
    scale = 1.0 / (SPREAD * longest + 1.0)
    last = [exp((count - longest) * scale) for count in tokens_left]
    factor = (1.0 - own_share) * (1.0 - mean) * count / sum(last)
    base = own_share + (1.0 - own_share) * mean
    return [base + factor * each for each in last]
