"""Launching Triton kernels, and the arithmetic of their grids, with types that can be checked."""

from functools import cache
from typing import Any

import torch
from triton import knobs
from triton.runtime import driver

CORES_WITHOUT_A_GPU = 32
"""The interpreter has none; this many make its tests split the keys."""


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Queue a kernel; constants and options such as `num_warps` go by name."""
    kernel[grid](*arguments, **constants)


def ceil_div(count: int, size: int) -> int:
    """Return how many of `size` hold `count`."""
    return -(-count // size)


def power_of_two(count: int) -> int:
    """Return the least power of two that is not below `count`, a positive number."""
    return 1 << (count - 1).bit_length()


@cache
def core_count(device: torch.device) -> int:
    """Return how many programs a device runs at once."""
    if device.type != "cuda":
        return CORES_WITHOUT_A_GPU
    return torch.cuda.get_device_properties(device).multi_processor_count


def is_interpreted() -> bool:
    """Whether kernels run in Triton's interpreter, on the CPU."""
    return knobs.runtime.interpret


def can_launch(device: torch.device) -> bool:
    """Whether kernels run on a device."""
    if is_interpreted():
        return True
    try:
        active: Any = driver.active
    except RuntimeError:  # no driver at all
        return False
    return active.get_active_torch_device().type == device.type
