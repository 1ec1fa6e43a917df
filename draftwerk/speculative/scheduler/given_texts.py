"""How much of given texts a round verifies, beside what others wait for.

A verified token costs about what one of a prompt does, in a long round as in a short one. So a
short round verifies no slower, and who comes meanwhile waits for less:

    beside prompts         a token of each text, as if it decoded
    beside decoding texts  chains that make the round twice as long at most
    alone                  those, or as many as last for a third of a pause
"""

from collections.abc import Sequence

from draftwerk.speculative.costs.work import NO_LOAD
from draftwerk.speculative.requests.sequence import Sequence as Text
from draftwerk.speculative.scheduler.round_budget import RoundBudget

ROUNDS_OF_OTHERS = 2.0
"""Length of a round with chains at most, in rounds without."""
PAUSE_SHARE = 1 / 3
"""Part of a bounded pause for which a round may last while nobody waits: who comes waits for its
rest and for a round of its own."""


def chain_room(decoding: Sequence[Text], budget: RoundBudget, tokens_max: int, unread: int) -> int:
    """Return how many given tokens each row of a given text may carry behind its own, where so many
    tokens of prompts could be read."""
    given = [text for text in decoding if text.request.given]
    if not given or unread:
        return 0
    load, cost = NO_LOAD, budget.cost
    for text in decoding:
        load = load.with_row(len(text.tokens) - 1, text.row_count, text.row_count)
    limit_ms = ROUNDS_OF_OTHERS * cost.ms(load)
    if len(given) == len(decoding):
        limit_ms = max(limit_ms, PAUSE_SHARE * 1e3 * budget.pause_s)
    behind = max(len(text.tokens) for text in given)
    most = cost.chunk_within(load, behind, max(0, tokens_max - load.tokens), limit_ms, outputs=1)
    return min(most // len(given), max(0, tokens_max // load.tokens - 1))
