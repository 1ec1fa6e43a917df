"""Sizes of rounds: from what steps of a model cost on this machine, and what its cache holds.

    rows    = as many texts as the cache holds, and no more than `ROWS_ALWAYS` where another one
              brings no more tokens a second
    tokens  = the knee of T(tokens): the fewest with which a token costs nearly the least it can

A round of more tokens than the knee reads prompts no faster and lets texts wait longer. Which texts
really fit is decided as they enter.
"""

from draftwerk.speculative.costs.step_cost import StepCost

ROWS_ALWAYS = 128
"""Texts that decode at once wherever memory allows."""
ROWS_MAX = 512
ROWS_MIN = 8
TEXT_TOKENS = 256
"""Of a short conversation: what a text needs in the cache before it may have a row."""
TOKENS_MIN = 256
TOKENS_MAX = 2048
STRIDE = 64
"""Sizes are multiples of it: those between are no better."""
NEAR_LEAST = 1.02
"""How many times the least that a token costs it may cost."""


def rows_of(cost: StepCost, cache_tokens: int) -> int:
    """Return how many texts run at once over a cache of so many tokens."""
    held = max(ROWS_MIN, cache_tokens // TEXT_TOKENS)
    return min(held, max(ROWS_ALWAYS, knee_tokens(cost)), ROWS_MAX)


def tokens_of(cost: StepCost, rows_max: int) -> int:
    """Return the tokens of a round: the knee, and room for two tokens in every row."""
    return max(TOKENS_MIN, 2 * rows_max, knee_tokens(cost))


def knee_tokens(cost: StepCost) -> int:
    """Return the smallest size of a step at which a token costs nearly the least it can."""
    table = cost.table(TOKENS_MAX)
    sizes = range(STRIDE, TOKENS_MAX + 1, STRIDE)
    least = min(table[size] / size for size in sizes)
    return next(size for size in sizes if table[size] <= NEAR_LEAST * least * size)
