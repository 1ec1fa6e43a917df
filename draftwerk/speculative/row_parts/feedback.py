"""Feedback of the target's decisions to the draft sources."""

from draftwerk.speculative.row_parts.plain import Plain

LOSS_NATS = 1 / 16
"""Unit of `losses`: how far a token's log-probability is below certainty."""


class TokenTopK(Plain, frozen=True):
    """The target's top-k log-probabilities after a token, best first."""

    token: int
    best: tuple[int, ...]
    losses: tuple[int, ...]
    """How far each is below certainty, in `LOSS_NATS`; without penalties, at temperature 1."""


class HeadNode(Plain, frozen=True):
    """A node of a draft head's tree: a token, committed or not, and the best that may follow it."""

    parent: int
    """The node whose token comes before, by index; -1 for the last known token's."""
    token: int
    best: tuple[int, ...]
    losses: tuple[int, ...]
    """As in `TokenTopK`; the noise of their place has ranked them."""


class Feedback(Plain, frozen=True):
    """Feedback of a decision to the draft sources for the sequence's next row.

    The scheduler hands it on unopened: only the target writes it, and only the proposer reads it.
    """

    topk: tuple[TokenTopK, ...] = ()
    """After the last known token and every node that was computed, if asked for."""
    head_tree: tuple[HeadNode, ...] = ()
    """The head's guesses after the decided tokens, parents first."""
    jump_forward: tuple[int, ...] = ()
    """Jump-forward tokens: the only ones that a grammar allows after the decided tokens."""


NOTHING_LEARNED = Feedback()
"""The feedback of a row that does not sample, fails, or was not to be reported on."""
