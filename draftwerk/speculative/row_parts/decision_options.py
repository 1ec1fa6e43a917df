"""Decisions and reports of options about a row, beside its tokens."""

import msgspec

from draftwerk.speculative.row_parts.beam_rows import HeadCandidates
from draftwerk.speculative.row_parts.chosen_logprob import ChosenLogprob


class DecisionOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Each for the option that asks for it, and encoded where it is set."""

    prompt_logprobs: tuple[ChosenLogprob, ...] = ()
    """Log-probabilities of known tokens after each position of the row's `scored`, or `answers`."""
    state_sum: bytes = b""
    """The sum of a row that pools, as `state_sums` has it."""
    margin: float | None = None
    """Where the last token is not the one given there: by how much it beats that one, in nats;
    infinite if that one could not be drawn."""
    candidates: tuple[tuple[tuple[int, float], ...], ...] = ()
    """A branch's candidates after its last known token (unless that was known) and after each node:
    the best next tokens with their log-probabilities after penalties and bias, best first."""
    head_candidates: tuple[HeadCandidates, ...] = ()
    """The head's guesses for a branch: where the search probably goes on."""
    deviations: tuple[float, ...] = ()
    """The deviations of a row that probes: squared distance of each token's new keys and values
    from the copied ones, in the check layer; 0 for tokens that were not copied."""


NOTHING_MORE = DecisionOptions()
"""The decision of a plain row has none."""
