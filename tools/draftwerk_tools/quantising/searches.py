"""Searches for the scales of blocks, by least weighted squares, over many blocks at once.

Arrays are [inputs of a block, blocks]. The searches are those of llama.cpp's reference
(make_qx_quants, make_qkx2_quants, quantize_row_iq4_nl_impl in ggml-quants.c): a few scales around
the one that the largest value asks for are tried, each moved to its least-squares optimum.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
"""Arrays of float32."""
TINY = 1e-15
"""Blocks whose values are all below have a scale of zero."""
Rounding = Callable[[Floats], Floats]


def centred_scales(values: Floats, divisors: Iterable[float], rounding: Rounding) -> Floats:
    """Return the scales [blocks] of quants around zero.

    The value farthest from zero, divided by each of `divisors`, is tried as the scale; `rounding`
    makes quants of values over a scale. Errors weigh by the values' squares.
    """
    farthest = extreme(values)
    is_zero = np.abs(farthest) < TINY
    farthest = np.where(is_zero, np.float32(1), farthest)
    weights = values * values
    weighted = weights * values
    best, found = np.zeros_like(farthest), np.zeros_like(farthest)
    for divisor in divisors:
        quants = rounding(values * (np.float32(divisor) / farthest))
        products = (weighted * quants).sum(axis=0)
        quants *= quants
        squares = (weights * quants).sum(axis=0)
        scale = np.divide(products, squares, out=np.zeros_like(best), where=squares > 0)
        gain = scale * products
        is_better = gain > best
        best = np.where(is_better, gain, best)
        found = np.where(is_better, scale, found)
    return np.where(is_zero, np.float32(0), found)


def extreme(values: Floats) -> Floats:
    """Return each column's value that is farthest from zero, with its sign."""
    least, most = values.min(axis=0), values.max(axis=0)
    return np.where(-least > most, least, most)


def scales_and_minima(
    values: Floats, weights: Floats, quant_max: int, steps: Iterable[float], absolute: bool = False
) -> tuple[Floats, Floats]:
    """Return scales and minima [blocks]: value = scale * quant - minimum, minimum >= 0.

    The range, divided by quant_max + each of `steps`, is tried as the scale. Errors are squared,
    or absolute.
    """
    least = np.minimum(values.min(axis=0), np.float32(0))
    span = values.max(axis=0) - least
    is_flat = span <= 0
    span = np.where(is_flat, np.float32(1), span)
    weight, total = weights.sum(axis=0), (weights * values).sum(axis=0)
    from_least = values - least
    scale, minimum = span / np.float32(quant_max), least

    def error_of(quants: Floats, scale: Floats, minimum: Floats) -> Floats:
        off = quants * scale
        off += minimum
        off -= values
        off = np.abs(off) if absolute else off * off
        return (weights * off).sum(axis=0)

    best = error_of(_clipped(from_least / scale, quant_max), scale, minimum)
    for step in steps:
        quants = _clipped(from_least * (np.float32(quant_max + step) / span), quant_max)
        weighted = weights * quants
        firsts = weighted.sum(axis=0)
        products = (weighted * values).sum(axis=0)
        weighted *= quants
        squares = weighted.sum(axis=0)
        determinant = weight * squares - firsts * firsts
        is_solved = determinant > 0
        determinant = np.where(is_solved, determinant, np.float32(1))
        new_scale = (weight * products - total * firsts) / determinant
        new_minimum = (squares * total - firsts * products) / determinant
        is_above = new_minimum > 0
        over = np.where(squares > 0, squares, np.float32(1))
        new_scale = np.where(is_above, products / over, new_scale)
        new_minimum = np.where(is_above, np.float32(0), new_minimum)
        error = error_of(quants, new_scale, new_minimum)
        is_better = is_solved & (error < best)
        best = np.where(is_better, error, best)
        scale = np.where(is_better, new_scale, scale)
        minimum = np.where(is_better, new_minimum, minimum)
    return np.where(is_flat, np.float32(0), scale), -minimum


def _clipped(values: Floats, quant_max: int) -> Floats:
    np.rint(values, out=values)
    return np.clip(values, 0, quant_max, out=values)
