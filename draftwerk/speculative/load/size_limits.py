"""The limits of a scheduler's rounds, the promises to its readers, and what holds a request."""

from math import inf

import msgspec

from draftwerk.speculative.requests.slo import NO_SLO, Slo, SloPolicy


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
    slo: Slo = NO_SLO
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

    @property
    def rows_in_flight(self) -> int:
        """Rows of one sequence that are under way at once at most, each with states of its own."""
        return 1 + self.run_ahead


class MemorySizes(msgspec.Struct, frozen=True):
    """The memory that an engine has for texts, and how much of it a round may use."""

    blocks: tuple[int, int] = (2**31, 1)
    """The pool: how many blocks, of how many tokens."""
    round_max: int = 2**31
    """Tokens in one round."""
    states: int = 0
    """Slots of recurrent states; 0 for a model without."""
    windows: tuple[int, int] = (0, 0)
    """Blocks of layers with windows, if they have some of their own, and what a text holds of them.
    """


UNBOUNDED = MemorySizes()


class RequestSizes(msgspec.Struct, frozen=True):
    """The sizes that an engine has for a request."""

    context_max: int
    """Prompt and generated tokens together."""
    vocab_size: int
    memory: MemorySizes = UNBOUNDED


class RefusedError(Exception):
    """The request can never be served as it is."""

    def __init__(self, reason: str, field: str = "", **counts: int) -> None:
        """`field` is the one to blame, the prompt if empty; `counts` are those of one that is too
        long, as `Failed` has them."""
        super().__init__(reason)
        self.field, self.counts = field, counts
