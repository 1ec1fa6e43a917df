"""Launching Triton kernels, and the arithmetic of their grids, with types that can be checked."""

from typing import Any


def launch(kernel: Any, grid: tuple[int, ...], *arguments: Any, **constants: Any) -> None:
    """Queue a kernel; constants and options such as `num_warps` go by name."""
    kernel[grid](*arguments, **constants)


def ceil_div(count: int, size: int) -> int:
    """Return how many of `size` hold `count`."""
    return -(-count // size)


def power_of_two(count: int) -> int:
    """Return the least power of two that is not below `count`, a positive number."""
    return 1 << (count - 1).bit_length()
