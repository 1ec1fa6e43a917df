"""The limits of a scheduler's rounds, and the promises to its readers."""

from math import inf

import msgspec

from draftwerk.speculative.requests.slo import NOTHING_PROMISED, Promise, SloPolicy


class RoundLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a round."""

    pipeline_depth: int = 1
    """Rounds under way at once."""
    rows_max: int = 64
    """Sequences running at once."""
    tokens_max: int = 256
    """Tokens computed in a round, drafts included."""
    draft_max: int = 7
    """Drafted tokens in a row."""
    promise: Promise = NOTHING_PROMISED
    """To every request that has no promise of its own."""
    pause_s: float = inf
    """The time that a round with texts and prompts may take, if a round of texts alone takes no
    longer than half of it; infinite: as long as it will."""
    tokens_revised: bool = False
    """Whether `tokens_max` follows what steps are seen to cost."""
    slo_policy: SloPolicy = "last"
    """The policy for a request that cannot be kept its promise."""
    in_order: bool = False
    """Whether prompts are read one after the other; else the shortest go first, within bounds."""
    run_ahead: bool = False
    """Whether a round is planned while the one before it runs; then the depth is two."""
