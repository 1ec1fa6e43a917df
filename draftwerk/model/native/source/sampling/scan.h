// Passes over a row of logits.
#pragma once

#include <cmath>

#include "simd/simd.h"

constexpr float MINUS_INFINITY = -INFINITY;

// Sixteen logits from `i` on, minus infinity behind the end of the row.
inline Floats logits_from(const float *values, int i, int count) {
    if (i + LANES <= count) return load(values + i);
    return keep_first(load_first(values + i, count - i), count - i, broadcast(MINUS_INFINITY));
}

inline float largest(const float *values, int count) {
    Floats most[4];
    for (Floats &one : most) one = broadcast(MINUS_INFINITY);
    int i = 0;
    for (; i + 4 * LANES <= count; i += 4 * LANES) {
        for (int j = 0; j < 4; j++) most[j] = max(most[j], load(values + i + j * LANES));
    }
    for (; i < count; i += LANES) most[0] = max(most[0], logits_from(values, i, count));
    return reduce_max(max(max(most[0], most[1]), max(most[2], most[3])));
}

inline int first_equal(const float *values, int count, float value) {
    const Floats wanted = broadcast(value);
    for (int i = 0; i < count; i += LANES) {
        uint32_t found = bits(equal(load_first(values + i, count - i), wanted));
        found &= first_lanes(count - i);
        if (found) return i + __builtin_ctz(found);
    }
    return 0;
}

// e**((logit - base) * inverse) and their sum in double.
struct Weights {
    Floats base, inverse;
    DoubleSum sum;
    Weights(float base, float inverse) : base(broadcast(base)), inverse(broadcast(inverse)) {}
    Floats of(const Floats &logits) const { return exponential((logits - base) * inverse); }
    void add(const Floats &weights) { sum.add(weights); }
    double total() const { return sum.total(); }
};
