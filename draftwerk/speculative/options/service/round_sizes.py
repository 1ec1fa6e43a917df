"""Sizes of rounds: from what steps of a model cost on this machine, and what its cache holds.

    rows    = as many texts as the cache holds, and no more than `ROWS_ALWAYS` where another one
              brings no more tokens a second
    tokens  = the knee of gap + T(tokens): the fewest with which a token costs nearly the least it
              can, where every round also costs the gap between two steps

A round of more tokens than the knee reads prompts no faster and lets texts wait longer. Which texts
really fit is decided as they enter.
"""

from draftwerk.speculative.costs.step_cost import StepCost

ROWS_ALWAYS = 128
"""Texts that decode at once wherever memory allows."""
ROWS_MAX = 512
ROWS_MIN = 8
TEXT_TOKENS = 256
"""The tokens of a short conversation: what a text needs in the cache before it may have a row."""
TOKENS_MIN = 256
TOKENS_MAX = 2048
STRIDE = 64
"""Sizes are multiples of it: those between are no better."""
NEAR_LEAST = 1.01
"""How many times the least that a token costs it may cost in the largest round."""
NEAR_LEAST_OF_TEXT = 1.1
"""The same with every row decoding: more texts at once make each of them slower."""
FIRST_GAP_MS = 1.0
"""What is taken to lie between two steps before any was served."""
FIRST_REVISIONS = (64, 128, 256, 512)
"""Rounds after which the sizes are revised at first, while the gap is still being learnt."""
REVISED_ROUNDS = 1024
"""Between two revisions from then on."""


def rows_of(cost: StepCost, cache_tokens: int) -> int:
    """Return how many texts run at once over a cache of so many tokens."""
    held = max(ROWS_MIN, cache_tokens // TEXT_TOKENS)
    if not gains_by_rows(cost):
        return min(held, ROWS_ALWAYS)
    return min(held, max(ROWS_ALWAYS, knee_tokens(cost, near=NEAR_LEAST_OF_TEXT)), ROWS_MAX)


def gains_by_rows(cost: StepCost) -> bool:
    """Return whether a row beyond `ROWS_ALWAYS` costs less than those up to there in the mean.

    Larger steps do not tell: they are measured on prompts, whose tokens need no logits.
    """
    half, whole = (FIRST_GAP_MS + cost.table(n)[n] for n in (ROWS_ALWAYS // 2, ROWS_ALWAYS))
    return NEAR_LEAST_OF_TEXT * 2.0 * (whole - half) < whole


def tokens_of(cost: StepCost, rows_max: int, gap_ms: float = FIRST_GAP_MS) -> int:
    """Return the tokens of a round: the knee, and room for two tokens in every row."""
    return max(TOKENS_MIN, 2 * rows_max, knee_tokens(cost, gap_ms))


def is_revised(rounds: int) -> bool:
    """Return whether the sizes are revised after so many rounds."""
    return rounds in FIRST_REVISIONS or rounds % REVISED_ROUNDS == 0


def revised_tokens(cost: StepCost, rows_max: int, tokens_max: int, gap_ms: float) -> int:
    """Return the tokens of a round as service has shown them, at most twice `tokens_max`.

    They stay where no round of late was half as large: nothing is known of larger ones.
    """
    if 2 * cost.known_max < tokens_max:
        return tokens_max
    return min(2 * tokens_max, tokens_of(cost, rows_max, gap_ms))


def knee_tokens(cost: StepCost, gap_ms: float = FIRST_GAP_MS, near: float = NEAR_LEAST) -> int:
    """Return the smallest size of a round at which a token costs nearly the least it can.

    A round costs its step, and `gap_ms` whatever its size: planning, messages, other processes.
    """
    table = cost.table(TOKENS_MAX)
    sizes = range(STRIDE, TOKENS_MAX + 1, STRIDE)
    least = min((gap_ms + table[size]) / size for size in sizes)
    return next(size for size in sizes if gap_ms + table[size] <= near * least * size)
