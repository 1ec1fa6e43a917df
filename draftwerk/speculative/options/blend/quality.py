"""Changes and savings of blending, as figures: without torch, for the server that shows them."""

from msgspec import Struct

from draftwerk.speculative.requests.declared_segments import RuleName


class Quality(Struct, frozen=True, kw_only=True):
    """The result of one rule at one ratio over all prompts."""

    rule: RuleName
    ratio: float
    kl_mean: float
    """Nats a token."""
    kl_p99: float
    top1: float
    """Share of places where the best token is the exact one's."""
    first_divergence: float
    """Mean of the first place where it is not; the answer's length if there is none."""
    overlap: float
    """Share of the blended greedy answer that stands at the same places in the exact one."""
    first_token_s: float
    """Median, segments found in the cache."""
    exact_s: float
    """Median of the exact prefill's first token, nothing found."""

    @property
    def sooner(self) -> float:
        """How many times sooner the first token comes than by exact prefill."""
        return self.exact_s / self.first_token_s
