"""Per-row weight of a token when drafts are chosen; the row with most tokens left weighs most.

A row that ends takes its own part of later steps' cost away. A step's fixed part goes away only
with the last row, unless a waiting request replaces a row that ends. So, where no request waits,
drafts for the row that is furthest behind weigh more than those for rows that are ahead: with many
rows, a draft that only lets an easy text end early costs the others more than it saves them.

Minimised is the sum of w_i * F_i, where F_i is when row i ends and n rows run:
    w_i = own_share_i + fixed_share * (mean / n + (1 - mean) * P(row i is last)),
own_share_i being the part of a step's cost that ends with row i, and fixed_share what no row's end
takes away. The longer a row's context, the larger its own share: a token of it saves a step of it.
A token more brings F_i forward by one step's worth whichever row it is, so row i's token weighs
n * w_i. P(row i is last) is a softmax of the tokens left, as wide as they are uncertain.
"""

from collections.abc import Sequence
from math import exp

MEAN_SHARE = 0.1
"""How much the mean row's end counts beside the last row's, where no request replaces one."""
SPREAD = 0.07
"""How uncertain it is which row will be last, as a share of the most tokens left."""


def token_weights(
    tokens_left: Sequence[int], occupancy: float, own_shares: Sequence[float]
) -> list[float]:
    """Return the weight of a token of each row; the mean is 1.

    `tokens_left` are the tokens that each row may still generate, `occupancy` is the share of ended
    rows whose place is taken, and `own_shares` are how much of a step's cost each row accounts for,
    the rest being fixed.
    """
    count = len(tokens_left)
    if count < 2:
        return [1.0] * count
    mean = occupancy + (1.0 - occupancy) * MEAN_SHARE
    fixed_share = max(0.0, 1.0 - sum(own_shares))
    longest = max(tokens_left)
    scale = 1.0 / (SPREAD * longest + 1.0)
    last = [exp((left - longest) * scale) for left in tokens_left]
    factor = fixed_share * (1.0 - mean) * count / sum(last)
    base = fixed_share * mean
    return [base + count * own + factor * each for own, each in zip(own_shares, last, strict=True)]
