"""The ways to round weights by what matrices read, by name."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from draftwerk.model.checkpoint.unsupported import Refused
from draftwerk_tools.quantising.methods.awq import aware_scales
from draftwerk_tools.quantising.methods.gptq import RowRounding, by_inputs
from draftwerk_tools.quantising.methods.layer_inputs import LayerInputs
from draftwerk_tools.quantising.methods.smoothquant import smooth_scales

NONE, JOINT = "none", "+"
ALPHAS = tuple(step / 10 for step in range(1, 10))
ScaleRule = Callable[[LayerInputs, Tensor, float], Tensor]
"""From what matrices read, how far from zero their weights are by input, and alpha."""
InputRounding = Callable[[Tensor], RowRounding]
"""From the mean squares of what matrices read [in, in] to what rounds them."""


class Method(NamedTuple):
    """The steps of a method with a layer; one that it has not is None."""

    name: str
    scales: ScaleRule | None = None
    """Scales of inputs, for each of some alphas."""
    rounding: InputRounding | None = None
    alphas: tuple[float, ...] = ALPHAS
    """The alphas that are tried."""

    def __str__(self) -> str:
        is_set = self.scales is not None and len(self.alphas) == 1
        return f"{self.name} (alpha {self.alphas[0]:g})" if is_set else self.name


METHODS = {
    each.name: each
    for each in (
        Method("smoothquant", scales=smooth_scales),
        Method("awq", scales=aware_scales),
        Method("gptq", rounding=by_inputs),
    )
}


def method_named(text: str, alpha: float | None = None) -> Method | None:
    """Return a method, or one that scales and one that rounds as `awq+gptq`; None for `none`.

    With an alpha no other is tried. Raises Refused.
    """
    if text == NONE:
        if alpha is not None:
            raise Refused("alpha is of smoothquant and awq, and there is no --method")
        return None
    parts = text.split(JOINT)
    for name in parts:
        if name not in METHODS:
            raise Refused(f"method {name!r} is none of none, {', '.join(METHODS)}")
    scales = [rule for name in parts if (rule := METHODS[name].scales) is not None]
    rounding = [rule for name in parts if (rule := METHODS[name].rounding) is not None]
    if len(scales) > 1 or len(rounding) > 1:
        raise Refused(f"method {text!r}: both are of one step, and one must do")
    if alpha is not None and not (scales and 0 <= alpha <= 1):
        raise Refused(f"alpha {alpha:g}: a number from 0 to 1, of smoothquant and awq")
    alphas = ALPHAS if alpha is None else (alpha,)
    return Method(text, next(iter(scales), None), next(iter(rounding), None), alphas)
