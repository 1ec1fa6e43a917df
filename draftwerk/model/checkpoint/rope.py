"""Rotary frequencies with `rope_scaling` applied, the same numbers on every machine.

Sources: linear (position interpolation, arXiv 2306.15595), YaRN (arXiv 2309.00071), and the
piecewise rule that Llama 3.1 published with its weights ("llama3").

Powers and logarithms come from `decimal`, rounded correctly by definition: torch's depend on the
instruction set, a C library's on its version. What follows is float64 arithmetic, which every CPU
rounds alike; the results are rounded to float32 once. Transformers rounds at each step.
"""

from collections.abc import Callable, Mapping, Sequence
from ctypes import c_float
from decimal import Context, Decimal
from math import ceil, floor, pi, sqrt
from typing import Any

Scaling = Mapping[str, Any]
Frequencies = Sequence[float]
"""Inverse frequencies, one per pair of head dimensions."""
Scaled = tuple[Frequencies, float]
"""These, and the factor on cos and sin."""
PRECISE = Context(prec=40)
"""More than twice the digits of a float64, so that rounding to one is rounding the true value."""


def rotary(
    head_size: int, theta: float, scaling: Scaling, context_max: int
) -> tuple[tuple[float, ...], float]:
    """Return one inverse frequency per pair of head dimensions, and the factor on cos and sin.

    The scaling has passed `check_rope`.
    """
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    plain = [_power(theta, -index, head_size) for index in range(0, head_size, 2)]
    frequencies, magnitude = RULES[kind](plain, theta, scaling, context_max)
    return tuple(c_float(each).value for each in frequencies), c_float(magnitude).value


def _power(base: float, numerator: int, denominator: int) -> float:
    """Return base ** (numerator / denominator)."""
    exponent = PRECISE.divide(Decimal(numerator), Decimal(denominator))
    return float(PRECISE.power(Decimal(base), exponent))


def _log(value: float) -> float:
    return float(PRECISE.ln(Decimal(value)))


def _default(plain: Frequencies, theta: float, scaling: Scaling, context_max: int) -> Scaled:
    return plain, 1.0


def _linear(plain: Frequencies, theta: float, scaling: Scaling, context_max: int) -> Scaled:
    return [each / scaling["factor"] for each in plain], 1.0


def _llama3(plain: Frequencies, theta: float, scaling: Scaling, context_max: int) -> Scaled:
    """Keep short wavelengths, divide long ones by the factor, and blend in between."""
    factor = scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    original = scaling["original_max_position_embeddings"]

    def scaled(frequency: float) -> float:
        wavelength = 2 * pi / frequency
        if wavelength > original / low:
            return frequency / factor
        if wavelength < original / high:
            return frequency
        blend = (original / wavelength - low) / (high - low)
        return (1 - blend) * (frequency / factor) + blend * frequency

    return [scaled(each) for each in plain], 1.0


def _yarn(plain: Frequencies, theta: float, scaling: Scaling, context_max: int) -> Scaled:
    """Interpolate the dimensions that turn too seldom over the original context."""
    original = scaling.get("original_max_position_embeddings") or context_max
    factor = scaling.get("factor") or context_max / original
    size = 2 * len(plain)

    def dimension(turns: float) -> float:
        return size * _log(original / (turns * 2 * pi)) / (2 * _log(theta))

    low = dimension(scaling.get("beta_fast") or 32)
    high = dimension(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = floor(low), ceil(high)
    low, high = max(low, 0), min(high, size - 1)

    def kept(index: int) -> float:
        return 1 - min(max((index - low) / (high - low or 0.001), 0.0), 1.0)

    frequencies = [
        each / factor * (1 - kept(index)) + each * kept(index) for index, each in enumerate(plain)
    ]
    return frequencies, _stated_magnitude(factor, scaling)


def yarn_magnitude(factor: float, weight: float = 1.0) -> float:
    """Return what YaRN multiplies cos and sin by; `weight` is of its growth with the factor."""
    return 1.0 if factor <= 1 else 0.1 * weight * _log(factor) + 1.0


def _stated_magnitude(factor: float, scaling: Scaling) -> float:
    given = scaling.get("attention_factor")
    if given is not None:
        return float(given)
    over, under = scaling.get("mscale"), scaling.get("mscale_all_dim")
    if over and under:
        return yarn_magnitude(factor, over) / yarn_magnitude(factor, under)
    return yarn_magnitude(factor)


def _ntk_alpha(plain: Frequencies, theta: float, scaling: Scaling, context_max: int) -> Scaled:
    """Raise theta once and for all (Hunyuan's "dynamic")."""
    size = 2 * len(plain)
    theta *= _power(scaling["alpha"], size, size - 2)
    return [_power(theta, -index, size) for index in range(0, size, 2)], 1.0


def _longrope(plain: Frequencies, theta: float, scaling: Scaling, context_max: int) -> Scaled:
    """Divide each frequency by a number of its own, of one of two lists.

    The short list is for texts up to the original context, the long one for all others;
    Transformers changes the list when a text grows. Here the model's context decides for all texts.
    """
    original = scaling["original_max_position_embeddings"]
    divisors = scaling["long_factor" if context_max > original else "short_factor"]
    factor = scaling.get("factor") or context_max / original
    magnitude = scaling.get("attention_factor")
    if magnitude is None:
        magnitude = 1.0 if factor <= 1 else sqrt(1 + _log(factor) / _log(original))
    return [each / by for each, by in zip(plain, divisors, strict=True)], float(magnitude)


def _proportional(plain: Frequencies, theta: float, scaling: Scaling, context_max: int) -> Scaled:
    """Turn a share of the pairs, the first of them; others have no frequency."""
    rotary_size = int(scaling.get("partial_rotary_factor", 1.0) * len(plain))
    factor = scaling.get("factor") or 1.0
    return [each / factor if i < rotary_size else 0.0 for i, each in enumerate(plain)], 1.0


RULES: dict[str, Callable[[Frequencies, float, Scaling, int], Scaled]] = {
    "default": _default,
    # It changes nothing for texts within the context, and longer ones are not served.
    "dynamic": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
    "ntk_alpha": _ntk_alpha,
    "proportional": _proportional,
}
