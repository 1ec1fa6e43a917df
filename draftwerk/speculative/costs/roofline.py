"""The roofline: the least time that a step can take on this machine, from exact counts.

Products are bound by arithmetic or by reading the weights, whichever takes longer; attention has
rates of its own, and its reading and its arithmetic take turns. Williams, Waterman and Patterson,
"Roofline: an insightful visual performance model", CACM 52 (2009).
"""

import msgspec

from draftwerk.speculative.costs.work import ModelShape, StepLoad

ATTENTION_SHARE = 0.6
"""The share of the peak in its format that attention reaches before anything is measured: its
products are narrow, and a softmax lies between them."""


class MachineRates(msgspec.Struct, frozen=True, kw_only=True):
    """The rates that this machine was measured to do at most."""

    flops_per_s: float
    """The rate of matrix products in the weights' format."""
    bytes_per_s: float
    """The rate of reading the weights."""
    attention_flops_per_s: float
    """The rate of products in the format in which attention is computed."""


class Roofline(msgspec.Struct, frozen=True, kw_only=True):
    """A model on a machine. Milliseconds."""

    shape: ModelShape
    rates: MachineRates

    def products_ms(self, load: StepLoad) -> float:
        """Return the least time of the matrix products."""
        arithmetic = self.shape.product_flops(load) / self.rates.flops_per_s
        return 1e3 * max(arithmetic, self.shape.weights_read(load) / self.rates.bytes_per_s)

    def attention_ms(self, load: StepLoad) -> float:
        """Return about what the arithmetic of attention takes."""
        rate = ATTENTION_SHARE * self.rates.attention_flops_per_s
        return 1e3 * self.shape.attention_flops(load) / rate

    def kv_ms(self, load: StepLoad) -> float:
        """Return the least time of reading the keys and values."""
        return 1e3 * load.kv_tokens * self.shape.token_bytes / self.rates.bytes_per_s

    def ms(self, load: StepLoad) -> float:
        """Return the least time of a whole step."""
        return self.products_ms(load) + self.attention_ms(load) + self.kv_ms(load)
