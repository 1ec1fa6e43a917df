"""Log-probabilities that are reported."""

from draftwerk.speculative.row_parts.plain import Plain


class ChosenLogprob(Plain, frozen=True):
    """A chosen token's log-probability under the raw model, and the best alternatives."""

    logprob: float
    top: tuple[tuple[int, float], ...] = ()
