"""Numbers of eight bits with four of exponent, as weights, activations and pages have them."""

import torch
from torch import Tensor

FP8 = torch.float8_e4m3fn
FP8_MAX = torch.finfo(FP8).max


def saturated(values: Tensor) -> Tensor:
    """Return the nearest e4m3 values; some versions of torch make NaN of what lies beyond."""
    return values.float().clamp(-FP8_MAX, FP8_MAX).to(FP8)
