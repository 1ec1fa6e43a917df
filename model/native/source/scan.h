// Passes over a row of logits.
#pragma once

#include <cmath>

#include "simd.h"

constexpr float MINUS_INFINITY = -INFINITY;

inline float largest(const float *values, int count) {
    __m512 best[4];
    for (auto &one : best) one = _mm512_set1_ps(MINUS_INFINITY);
    int i = 0;
    for (; i + 4 * LANES <= count; i += 4 * LANES) {
        for (int j = 0; j < 4; j++) {
            best[j] = _mm512_max_ps(best[j], _mm512_loadu_ps(values + i + j * LANES));
        }
    }
    for (; i < count; i += LANES) {
        __mmask16 mask = lanes_below(count - i);
        best[0] = _mm512_mask_max_ps(best[0], mask, best[0], _mm512_maskz_loadu_ps(mask,
                                                                                   values + i));
    }
    return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(best[0], best[1]),
                                              _mm512_max_ps(best[2], best[3])));
}

inline int first_equal(const float *values, int count, float value) {
    for (int i = 0; i < count; i += LANES) {
        __mmask16 mask = lanes_below(count - i);
        __m512 lanes = _mm512_maskz_loadu_ps(mask, values + i);
        mask = _mm512_mask_cmp_ps_mask(mask, lanes, _mm512_set1_ps(value), _CMP_EQ_OQ);
        if (mask) return i + __builtin_ctz(mask);
    }
    return 0;
}

// e**((logit - base) * inverse) and its lanes' sum in double.
struct Weights {
    __m512 base, inverse;
    __m512d low = _mm512_setzero_pd(), high = _mm512_setzero_pd();
    __m512 of(__m512 logits) const {
        return exponential(_mm512_mul_ps(_mm512_sub_ps(logits, base), inverse));
    }
    void add(__m512 weights) {
        low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(weights)));
        high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(weights, 1)));
    }
    double total() const { return _mm512_reduce_add_pd(_mm512_add_pd(low, high)); }
};
