"""Numbers of eight bits with four of exponent, as weights, activations and pages have them."""

import torch
from torch import Tensor

FP8 = torch.float8_e4m3fn
FP8_MAX = torch.finfo(FP8).max


def saturated(values: Tensor) -> Tensor:
    """Return the nearest e4m3 values; some versions of torch make NaN of what lies beyond."""
    return values.float().clamp(-FP8_MAX, FP8_MAX).to(FP8)


def write(held: Tensor, slots: Tensor, values: Tensor) -> None:
    """Write values into slots of pages [slots, ...], in the pages' own dtype."""
    if held.dtype == FP8:  # which not every device scatters, or gathers
        held, values = held.view(torch.uint8), saturated(values).view(torch.uint8)
    held[slots] = values.to(held.dtype)


def read(held: Tensor, slots: Tensor, dtype: torch.dtype) -> Tensor:
    """Return what slots of pages [slots, ...] hold, in a dtype."""
    if held.dtype == FP8:
        return held.view(torch.uint8)[slots].view(FP8).to(dtype)
    return held[slots].to(dtype)
