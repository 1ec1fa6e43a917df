"""The rule of products with stored matrices, in plain numpy: what the kernels are compared with.

Activations are rounded to signed bytes in groups of 32 inputs with a float scale `a` each. Of an
output and a group of 32 (or a half of 16 where scales are of 16), `u` is the sum of quants times
bytes in integers. With integer scales, by units of 256 inputs:

    part = fma(sum of scale * u, a, part)         low = fma(minimum, a * sum of the bytes, low)
    sum = fma(part, d, sum), then sum = fma(-low, dmin, sum)

and without: sum = fma(u * d, a, sum), then sum = fma(m, a * sum of the bytes, sum).

Where weights are floats, `first` is a chain of multiply-adds of weights and bytes over inputs 0 and
1 of each four, `second` one over 2 and 3, and sum = fma((first + second) * d, a, sum).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
TINY = 2.0**-40
IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113])
MXFP4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12])
BYTES = {
    "Q4_0": 18,
    "Q4_1": 20,
    "Q5_0": 22,
    "Q5_1": 24,
    "Q8_0": 34,
    "IQ4_NL": 18,
    "MXFP4": 17,
    "Q2_K": 84,
    "Q3_K": 110,
    "Q4_K": 144,
    "Q5_K": 176,
    "Q6_K": 210,
    "IQ4_XS": 136,
    "F32": 128,
    "F16": 64,
    "BF16": 64,
    "G4_32": 20,
    "G4_128": 68,
    "G8_128": 132,
    "F8_128": 132,
}
"""Of a block in the file."""
INPUTS = {
    kind: 256 if kind.endswith(("K", "XS")) else 128 if kind.endswith("_128") else 32
    for kind in BYTES
}
FLOATS = ("F32", "F16", "BF16", "F8_128")


class Decoded(NamedTuple):
    """Blocks [rows, blocks] by their parts; weight = d * scale * quant - dmin * minimum, or + m."""

    quants: Ints
    """[rows, blocks, inputs], centred."""
    d: Floats
    scales: Ints | None = None
    """[rows, blocks, 8 or 16]."""
    dmin: Floats | None = None
    """Of types without integer scales this is m."""
    minima: Ints | None = None


def decode(kind: str, data: NDArray[np.uint8]) -> Decoded:
    """Return the parts of rows of blocks [rows, bytes a row]."""
    blocks = np.ascontiguousarray(data).reshape(len(data), -1, BYTES[kind])
    return DECODERS[kind](blocks)


def dequantise(kind: str, data: NDArray[np.uint8]) -> Floats:
    """Return the values [rows, inputs] of `decode`'s parts, as the format defines them."""
    if kind in FLOATS:
        values, d = float_weights(kind, data)
        return (values * d[..., None]).reshape(len(data), -1)
    of = decode(kind, data)
    quants, d = of.quants.astype(np.float32), of.d[..., None]
    if of.scales is None:
        values = quants * d if of.dmin is None else quants * d + of.dmin[..., None]
        return values.reshape(len(data), -1)
    values = d * _each(of.scales, 256) * quants
    if of.minima is not None and of.dmin is not None:
        values = values - of.dmin[..., None] * _each(of.minima, 256)
    return values.astype(np.float32).reshape(len(data), -1)


def product(kind: str, data: NDArray[np.uint8], inputs: Floats) -> Floats:
    """Return inputs [n, k] times rows [m, k], float32 [n, m], by the rule above."""
    bytes_, a = rounded(inputs)
    if kind in FLOATS:
        return np.stack([_of_floats(kind, data, *each) for each in zip(bytes_, a, strict=True)])
    of = decode(kind, data)
    return np.stack([_row(of, bytes_[row], a[row]) for row in range(len(inputs))])


def rounded(inputs: Floats) -> tuple[Ints, Floats]:
    """Return signed bytes [n, groups, 32] and scales [n, groups]."""
    groups = inputs.reshape(len(inputs), -1, 32)
    most = np.abs(groups).max(axis=2)
    a = np.where(most < TINY, np.float32(0), most / np.float32(127)).astype(np.float32)
    inverse = np.divide(np.float32(1), a, out=np.zeros_like(a), where=a > 0)
    return np.rint(groups * inverse[..., None]).astype(np.int64), a


def fma(a: Floats, b: Floats, c: Floats) -> Floats:
    """Return a * b + c, rounded once: the sum in double is rounded to odd, then to float."""
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = product + addend
    left = total - product
    error = (product - (total - left)) + (addend - left)
    is_even = (total.view(np.int64) & 1) == 0
    beside = np.nextafter(total, np.copysign(np.inf, error))
    return np.where((error != 0) & is_even, beside, total).astype(np.float32)


def float_weights(kind: str, data: NDArray[np.uint8]) -> tuple[Floats, Floats]:
    """Return weights [rows, groups, 32] and the factor [rows, groups] of each group."""
    blocks = np.ascontiguousarray(data).reshape(len(data), -1, BYTES[kind])
    if kind == "F8_128":
        d = np.repeat(np.ascontiguousarray(blocks[..., :4]).view(np.float32)[..., 0], 4, axis=1)
        values = E4M3[blocks[..., 4:]]
    else:
        words = blocks.view({"F32": np.uint32}.get(kind, np.uint16))
        d = np.ones(blocks.shape[:2], np.float32)
        if kind == "BF16":
            words = words.astype(np.uint32) << 16
        values = words.view(np.float16 if kind == "F16" else np.float32).astype(np.float32)
    return values.reshape(len(data), -1, 32), d


def _of_floats(kind: str, data: NDArray[np.uint8], row: Ints, a: Floats) -> Floats:
    weights, d = float_weights(kind, data)
    if kind == "F8_128":  # the kernels read bytes as halves, which are a 256th
        weights, d = weights / np.float32(256), d * np.float32(256)
    sums = np.zeros(len(data), np.float32)
    for group in range(weights.shape[1]):
        chains = [np.zeros_like(sums), np.zeros_like(sums)]
        for i in range(32):
            of, byte = i % 4 // 2, np.full_like(sums, row[group, i])
            chains[of] = fma(weights[:, group, i], byte, chains[of])
        part = (chains[0] + chains[1]) * d[:, group]
        sums = fma(part, np.full_like(sums, a[group]), sums)
    return sums


def _row(of: Decoded, row: Ints, a: Floats) -> Floats:
    """Return one row of activations times all rows."""
    rows, blocks, size = of.quants.shape
    groups = size // 32
    sums = np.zeros(rows, np.float32)
    for block in range(blocks):
        at = slice(block * groups, (block + 1) * groups)
        bytes_, scales = row[at], a[at]
        if of.scales is None:
            sums = _plain(of, block, bytes_[0], scales[0], sums)
        else:
            sums = _scaled(of, block, bytes_, scales, sums)
    return sums


def _plain(of: Decoded, block: int, bytes_: Ints, a: np.float32, sums: Floats) -> Floats:
    d = np.where(np.abs(of.d[:, block]) < TINY, np.float32(0), of.d[:, block])
    dot = (of.quants[:, block] @ bytes_).astype(np.float32)
    sums = fma(dot * d, np.full_like(sums, a), sums)
    if of.dmin is None:
        return sums
    return fma(of.dmin[:, block], np.full_like(sums, a * np.float32(bytes_.sum())), sums)


def _scaled(of: Decoded, block: int, bytes_: Ints, a: Floats, sums: Floats) -> Floats:
    assert of.scales is not None
    part, low = np.zeros_like(sums), np.zeros_like(sums)
    each = of.scales.shape[2] // 8
    quants = of.quants[:, block].reshape(len(sums), 8, each, -1)
    dots = (quants * bytes_.reshape(1, 8, each, -1)).sum(axis=3)
    totals = (dots * of.scales[:, block].reshape(len(sums), 8, each)).sum(axis=2)
    for group in range(8):
        scale = np.full_like(sums, a[group])
        part = fma(totals[:, group].astype(np.float32), scale, part)
        if of.minima is None:
            continue
        halves = bytes_[group].reshape(each, -1).sum(axis=1)
        for half, total in enumerate(halves):
            minimum = of.minima[:, block, group * each + half].astype(np.float32)
            low = fma(minimum, np.full_like(sums, a[group] * np.float32(total)), low)
    sums = fma(part, of.d[:, block], sums)
    return sums if of.dmin is None else fma(-low, of.dmin[:, block], sums)


def _each(values: Ints, size: int) -> Floats:
    """Return values of parts of a block for each of its inputs."""
    return np.repeat(values, size // values.shape[2], axis=2).astype(np.float32)


def _half(blocks: NDArray[np.uint8], at: int) -> Floats:
    halves = np.ascontiguousarray(blocks[..., at : at + 2]).view(np.float16)
    return halves[..., 0].astype(np.float32)


def _nibbles(values: NDArray[np.uint8]) -> Ints:
    """Return the lower nibbles of the last axis, then the upper ones."""
    return np.concatenate([values & 15, values >> 4], axis=-1).astype(np.int64)


def _fifth(blocks: NDArray[np.uint8], at: int) -> Ints:
    bits = np.unpackbits(blocks[..., at : at + 4], axis=-1, bitorder="little")
    return bits.astype(np.int64) << 4


def _pairs(values: NDArray[np.uint8]) -> Ints:
    """Return the two bits of four quarters of each 32 bytes, quarter by quarter."""
    halves = values.reshape(*values.shape[:-1], 2, 1, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    return (halves >> shifts & 3).reshape(*values.shape[:-1], 256).astype(np.int64)


def _planes(values: NDArray[np.uint8]) -> Ints:
    """Return bit j of 32 bytes for the inputs of group j."""
    shifts = np.arange(8, dtype=np.uint8)[:, None]
    return (values[..., None, :] >> shifts & 1).reshape(*values.shape[:-1], 256).astype(np.int64)


def _fours(values: NDArray[np.uint8]) -> Ints:
    """Return the nibbles of each 32 bytes, the lower ones first."""
    return _nibbles(values.reshape(*values.shape[:-1], 4, 32)).reshape(*values.shape[:-1], 256)


def _six_bits(blocks: NDArray[np.uint8]) -> tuple[Ints, Ints]:
    a, b, c = (blocks[..., at : at + 4].astype(np.int64) for at in (4, 8, 12))
    scales = np.concatenate([a & 63, (c & 15) | (a >> 6) << 4], axis=-1)
    return scales, np.concatenate([b & 63, (c >> 4) | (b >> 6) << 4], axis=-1)


def _q4_k(blocks: NDArray[np.uint8]) -> Decoded:
    scales, minima = _six_bits(blocks)
    quants = _fours(blocks[..., 16:])
    return Decoded(quants, _half(blocks, 0), scales, _half(blocks, 2), minima)


def _q5_k(blocks: NDArray[np.uint8]) -> Decoded:
    scales, minima = _six_bits(blocks)
    quants = _fours(blocks[..., 48:]) + (_planes(blocks[..., 16:48]) << 4)
    return Decoded(quants, _half(blocks, 0), scales, _half(blocks, 2), minima)


def _q6_k(blocks: NDArray[np.uint8]) -> Decoded:
    shape = blocks.shape[:-1]
    low = _nibbles(blocks[..., :128].reshape(*shape, 2, 64)).reshape(*shape, 256)
    quants = low + (_pairs(blocks[..., 128:192]) << 4) - 32
    scales = blocks[..., 192:208].view(np.int8).astype(np.int64)
    return Decoded(quants, _half(blocks, 208), scales)


def _q3_k(blocks: NDArray[np.uint8]) -> Decoded:
    quants = _pairs(blocks[..., 32:96]) + 4 * _planes(blocks[..., :32]) - 4
    low = _nibbles(blocks[..., 96:104])
    high = blocks[..., 104:108].astype(np.int64)
    shifts = np.array([0, 2, 4, 6])[:, None]
    upper = (high[..., None, :] >> shifts & 3).reshape(*low.shape)
    return Decoded(quants, _half(blocks, 108), (low | upper << 4) - 32)


def _q2_k(blocks: NDArray[np.uint8]) -> Decoded:
    both = blocks[..., :16].astype(np.int64)
    quants = _pairs(blocks[..., 16:80])
    return Decoded(quants, _half(blocks, 80), both & 15, _half(blocks, 82), both >> 4)


def _iq4_xs(blocks: NDArray[np.uint8]) -> Decoded:
    shape = blocks.shape[:-1]
    high = blocks[..., 2].astype(np.int64) | blocks[..., 3].astype(np.int64) << 8
    groups = np.arange(8)
    low = blocks[..., 4:8].astype(np.int64)[..., groups // 2] >> 4 * (groups % 2) & 15
    scales = (low | (high[..., None] >> 2 * groups & 3) << 4) - 32
    quants = IQ4[_nibbles(blocks[..., 8:].reshape(*shape, 8, 16))].reshape(*shape, 256)
    return Decoded(quants, _half(blocks, 0), scales)


def _mxfp4(blocks: NDArray[np.uint8]) -> Decoded:
    d = np.ldexp(np.float32(1), blocks[..., 0].astype(np.int64) - 128).astype(np.float32)
    return Decoded(MXFP4[_nibbles(blocks[..., 1:])], d)


def _e4m3(byte: int) -> float:
    exponent, mantissa = byte >> 3 & 15, byte & 7
    value = (8 + mantissa) * 2.0 ** (exponent - 10) if exponent else mantissa * 2.0**-9
    return -value if byte & 128 else value


E4M3 = np.array([_e4m3(byte) for byte in range(256)], np.float32)


def _g4(blocks: NDArray[np.uint8]) -> Decoded:
    groups = (blocks.shape[2] - 4) // 16
    words = np.ascontiguousarray(blocks[..., :4]).view(np.uint32)
    d = np.repeat((words & 0xFFFFFF00).view(np.float32)[..., 0], groups, axis=1)
    zeros = np.repeat(blocks[..., 0].astype(np.float32), groups, axis=1)
    quants = _nibbles(blocks[..., 4:].reshape(len(blocks), -1, 16))
    return Decoded(quants, d, dmin=-zeros * d)


def _g8(blocks: NDArray[np.uint8]) -> Decoded:
    d = np.ascontiguousarray(blocks[..., :4]).view(np.float32)[..., 0]
    quants = blocks[..., 4:].view(np.int8).astype(np.int64)
    return Decoded(quants.reshape(len(blocks), -1, 32), np.repeat(d, 4, axis=1))


DECODERS = {
    "G4_32": _g4,
    "G4_128": _g4,
    "G8_128": _g8,
    "Q4_0": lambda blocks: Decoded(_nibbles(blocks[..., 2:]) - 8, _half(blocks, 0)),
    "Q4_1": lambda blocks: Decoded(
        _nibbles(blocks[..., 4:]), _half(blocks, 0), dmin=_half(blocks, 2)
    ),
    "Q5_0": lambda blocks: Decoded(
        _nibbles(blocks[..., 6:]) + _fifth(blocks, 2) - 16, _half(blocks, 0)
    ),
    "Q5_1": lambda blocks: Decoded(
        _nibbles(blocks[..., 8:]) + _fifth(blocks, 4), _half(blocks, 0), dmin=_half(blocks, 2)
    ),
    "Q8_0": lambda blocks: Decoded(
        blocks[..., 2:].view(np.int8).astype(np.int64), _half(blocks, 0)
    ),
    "IQ4_NL": lambda blocks: Decoded(IQ4[_nibbles(blocks[..., 2:])], _half(blocks, 0)),
    "MXFP4": _mxfp4,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ4_XS": _iq4_xs,
}
HALVES = {
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "Q4_1": (0, 2),
    "Q5_1": (0, 2),
}
"""Where a block's halves are, if it is not the first two bytes alone."""


def random_blocks(
    kind: str,
    rows: int,
    inputs: int,
    seed: int = 0,
    fill: int | None = None,
    size: float = 1.0,
) -> NDArray[np.uint8]:
    """Return blocks [rows, bytes a row] of random bytes, or of one, with scales about 0.01 * size.

    Among the scales are zeros and denormal numbers.
    """
    generator = np.random.default_rng(seed)
    count = inputs // INPUTS[kind]
    blocks = generator.integers(0, 256, (rows, count, BYTES[kind]), dtype=np.uint8)
    if fill is not None:
        blocks[:] = fill
    if kind == "MXFP4":
        blocks[..., 0] = generator.integers(115, 125, (rows, count)) + round(np.log2(size))
        return blocks.reshape(rows, -1)
    if kind in ("F32", "F16", "BF16") or kind in ("G4_32", "G4_128", "G8_128", "F8_128"):
        return _float_blocks(kind, blocks, generator, size, fill).reshape(rows, -1)
    for at in HALVES.get(kind, (0,)):
        halves = generator.normal(0, 0.01 * size, (rows, count, 1)).astype(np.float16)
        halves[0, 0] = 0
        halves[-1, 0] = np.float16(6e-8)  # denormal
        blocks[..., at : at + 2] = halves.view(np.uint8)
    return blocks.reshape(rows, -1)


def _float_blocks(
    kind: str,
    blocks: NDArray[np.uint8],
    generator: np.random.Generator,
    size: float,
    fill: int | None,
) -> NDArray[np.uint8]:
    """Return blocks of floats, or the same ones with floats for scales."""
    rows, count = blocks.shape[:2]
    if kind not in ("F32", "F16", "BF16"):
        scales = generator.normal(0, 0.01 * size, (rows, count, 1)).astype(np.float32)
        scales[0, 0] = 0
        zeros = blocks[..., 0] & 31
        blocks[..., :4] = scales.view(np.uint8)
        if kind.startswith("G4"):
            blocks[..., 0] = zeros
        return blocks
    values = generator.normal(0, 0.01 * size, (rows, count, 32)).astype(np.float32)
    values[0, 0], values[-1, 0] = 0, np.float16(6e-8)
    if fill is not None:
        values[:] = (fill - 127.5) * 2.0**-8
    if kind == "F32":
        return values.view(np.uint8)
    if kind == "F16":
        return values.astype(np.float16).view(np.uint8)
    return np.ascontiguousarray(values.view(np.uint16)[..., 1::2]).view(np.uint8)
