"""Rotary frequencies with `rope_scaling` applied, in the float32 steps Transformers takes.

Sources: linear (position interpolation, arXiv 2306.15595), YaRN (arXiv 2309.00071), and the
piecewise rule that Llama 3.1 published with its weights ("llama3").
"""

from collections.abc import Callable, Mapping
from math import ceil, floor, log, pi
from typing import Any

import torch
from torch import Tensor

Scaling = Mapping[str, Any]


def rotary(
    head_size: int, theta: float, scaling: Scaling, context_max: int
) -> tuple[tuple[float, ...], float]:
    """Return one inverse frequency per pair of head dimensions, and the factor on cos and sin.

    The scaling has passed `check_rope`.
    """
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    plain = 1.0 / theta ** (torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
    frequencies, magnitude = RULES[kind](plain, theta, scaling, context_max)
    return tuple(frequencies.tolist()), magnitude


def _default(
    plain: Tensor, theta: float, scaling: Scaling, context_max: int
) -> tuple[Tensor, float]:
    return plain, 1.0


def _linear(
    plain: Tensor, theta: float, scaling: Scaling, context_max: int
) -> tuple[Tensor, float]:
    return plain / scaling["factor"], 1.0


def _llama3(
    plain: Tensor, theta: float, scaling: Scaling, context_max: int
) -> tuple[Tensor, float]:
    """Keep short wavelengths, divide long ones by the factor, and blend in between."""
    factor = scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    original = scaling["original_max_position_embeddings"]
    wavelength = 2 * pi / plain
    blend = (original / wavelength - low) / (high - low)
    blended = (1 - blend) * (plain / factor) + blend * plain
    long, short = wavelength > original / low, wavelength < original / high
    return torch.where(long, plain / factor, torch.where(short, plain, blended)), 1.0


def _yarn(plain: Tensor, theta: float, scaling: Scaling, context_max: int) -> tuple[Tensor, float]:
    """Interpolate the dimensions that turn too seldom over the original context."""
    original = scaling.get("original_max_position_embeddings") or context_max
    factor = scaling.get("factor") or context_max / original
    size = 2 * len(plain)

    def dimension(turns: float) -> float:
        return size * log(original / (turns * 2 * pi)) / (2 * log(theta))

    low = dimension(scaling.get("beta_fast") or 32)
    high = dimension(scaling.get("beta_slow") or 1)
    if scaling.get("truncate", True):
        low, high = floor(low), ceil(high)
    low, high = max(low, 0), min(high, size - 1)
    ramp = (torch.arange(size // 2, dtype=torch.float32) - low) / (high - low or 0.001)
    kept = 1 - ramp.clamp(0, 1)
    return plain / factor * (1 - kept) + plain * kept, _yarn_magnitude(factor, scaling)


def _yarn_magnitude(factor: float, scaling: Scaling) -> float:
    def magnitude(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * log(factor) + 1.0

    given = scaling.get("attention_factor")
    if given is not None:
        return float(given)
    over, under = scaling.get("mscale"), scaling.get("mscale_all_dim")
    return magnitude(over) / magnitude(under) if over and under else magnitude(1.0)


RULES: dict[str, Callable[[Tensor, float, Scaling, int], tuple[Tensor, float]]] = {
    "default": _default,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
}
