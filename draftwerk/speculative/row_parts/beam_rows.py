"""Rows of beam searches, and what a draft head guesses for them."""

from draftwerk.speculative.row_parts.plain import Plain


class HeadCandidates(Plain, frozen=True):
    """A draft head's candidates after a token that a beam search has probably chosen."""

    node: int
    """The drafted node before the token; -1 is the row's last known token."""
    token: int
    candidates: tuple[tuple[int, float], ...]
    """The best next tokens with their log-probabilities, best first."""


Seen = tuple[tuple[int, ...], tuple[tuple[int, float], ...]]
"""A few tokens of a text, and the best next tokens there with their log-probabilities."""


class Branch(Plain, frozen=True, kw_only=True):
    """The mark of a row of a beam search: it asks what is likely, and decides nothing itself."""

    group_id: int
    """The sequence that read the prompt; it stays open as long as the search."""
    candidates: int
    """How many of the best next tokens are wanted, after the last known token and every node."""
    origin: int = 0
    """The sequence that this new one copies, as it was before the round; 0 if it is not new."""
    score: float = 0.0
    """Log-probability of the generated tokens: how the branches of a group compare."""
    width: int = 1
    """Branches that survive a step."""
    seen: tuple[Seen, ...] = ()
    """The candidates of the group's previous rows, in the first row alone: for draft sources."""
    known: tuple[tuple[int, float], ...] = ()
    """The candidates after the last known token, if an earlier draft tree computed them."""
    head_candidates: tuple[tuple[int, float], ...] = ()
    """The draft head's candidates there, if none did."""
