"""Logarithm and exponential, the same bits on every machine.

C libraries round the last bit differently; these use IEEE additions, multiplications and divisions
alone, after Sun's fdlibm, with an error below one unit in the last place. Whatever decides which
token comes uses them; `model/native/source/simd/elementary.h` has the same two.
"""

from math import floor, frexp, inf, ldexp

LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10
SQRT_HALF = 0.70710678118654752440


def log(x: float) -> float:
    """Return the natural logarithm of a positive number."""
    m, k = frexp(x)
    if m < SQRT_HALF:
        m, k = m * 2, k - 1
    f = m - 1.0
    half_square = 0.5 * f * f
    s = f / (2.0 + f)
    z = s * s
    w = z * z
    even = w * (
        3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01)
    )
    odd = z * (
        6.666666666666735130e-01
        + w
        * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01))
    )
    return s * (half_square + (odd + even)) + k * LN2_LOW - half_square + f + k * LN2_HIGH


def exp(x: float) -> float:
    """Return e to a power; 0 and infinity beyond the range of floats."""
    if not -745.0 <= x <= 709.0:
        return x if x != x else (0.0 if x < 0 else inf)
    k = float(floor(1.44269504088896338700 * x + 0.5))
    high, low = x - k * LN2_HIGH, k * LN2_LOW
    r = high - low
    t = r * r
    c = r - t * (
        1.66666666666666019037e-01
        + t
        * (
            -2.77777777770155933842e-03
            + t
            * (
                6.61375632143793436117e-05
                + t * (-1.65339022054652515390e-06 + t * 4.13813679705723846039e-08)
            )
        )
    )
    return ldexp(1.0 + (r * c / (2.0 - c) - low + high), int(k))
