// Logarithm, exponential, sine and cosine in double, by IEEE additions, multiplications and
// divisions alone: C libraries differ in the last bit, these do not. After Sun's fdlibm, error
// below one unit in the last place. speculative/parameters/elementary.py has the same `log` and
// `exp`.
#pragma once

#include <cmath>
#include <cstdint>

namespace elementary {

constexpr double LN2_HIGH = 6.93147180369123816490e-01, LN2_LOW = 1.90821492927058770002e-10;

// Of a positive number.
inline double log(double x) {
    int k;
    double m = std::frexp(x, &k);
    if (m < 0.70710678118654752440) m *= 2, k -= 1;
    double f = m - 1.0, half_square = 0.5 * f * f, s = f / (2.0 + f), z = s * s, w = z * z;
    double even = w * (3.999999999940941908e-01 +
                       w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
    double odd = z * (6.666666666666735130e-01 +
                      w * (2.857142874366239149e-01 +
                           w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
    return s * (half_square + (odd + even)) + k * LN2_LOW - half_square + f + k * LN2_HIGH;
}

inline double exp(double x) {
    if (x != x) return x;
    if (x < -745.0) return 0.0;
    if (x > 709.0) return INFINITY;
    double k = std::floor(1.44269504088896338700 * x + 0.5);
    double high = x - k * LN2_HIGH, low = k * LN2_LOW, r = high - low, t = r * r;
    double c = r - t * (1.66666666666666019037e-01 +
                        t * (-2.77777777770155933842e-03 +
                             t * (6.61375632143793436117e-05 +
                                  t * (-1.65339022054652515390e-06 +
                                       t * 4.13813679705723846039e-08))));
    return std::ldexp(1.0 + (r * c / (2.0 - c) - low + high), static_cast<int>(k));
}

// Of angles up to 2^20 quarter turns, far beyond any position.
inline void sine_and_cosine(double angle, double &sine, double &cosine) {
    double turns = std::nearbyint(angle * 6.36619772367581382433e-01);
    double x = (angle - turns * 1.57079632673412561417) - turns * 6.07710050650619224932e-11;
    double z = x * x;
    double s = x + z * x * (-1.66666666666666324348e-01 +
                            z * (8.33333333332248946124e-03 +
                                 z * (-1.98412698298579493134e-04 +
                                      z * (2.75573137070700676789e-06 +
                                           z * (-2.50507602534068634195e-08 +
                                                z * 1.58969099521155010221e-10)))));
    double c = 1.0 - (0.5 * z - z * z * (4.16666666666666019037e-02 +
                                         z * (-1.38888888888741095749e-03 +
                                              z * (2.48015872894767294178e-05 +
                                                   z * (-2.75573143513906633035e-07 +
                                                        z * (2.08757232129817482790e-09 +
                                                             z * -1.13596475577881948265e-11))))));
    switch (static_cast<int64_t>(turns) & 3) {
        case 0: sine = s, cosine = c; return;
        case 1: sine = c, cosine = -s; return;
        case 2: sine = -s, cosine = -c; return;
        default: sine = -c, cosine = s;
    }
}

}  // namespace elementary
