// Weights rounded to blocks of 32, as a file of that type would hold them.
#include <cmath>
#include <cstring>

#include "matrix/half.h"
#include "matrix/stored.h"
#include "simd/simd.h"

namespace {

// Thirty-two inputs, the first sixteen and the others.
struct Weights {
    Floats half[2];

    Weights(const float *values, int count)
        : half{load_first(values, count), load_first(values + LANES, count - LANES)} {}

    // The weight that is farthest from zero.
    float farthest() const {
        const Floats minus = broadcast(-1.0f);
        float most = reduce_max(max(half[0], half[1]));
        float least = -reduce_max(max(half[0] * minus, half[1] * minus));
        return most >= -least ? most : least;
    }
};

void put_half(uint8_t *to, float value) {
    uint16_t half = to_half(value);
    memcpy(to, &half, sizeof half);
}

void q8_0(const Weights &weights, uint8_t *block) {
    const float scale = from_half(to_half(std::fabs(weights.farthest()) / 127));
    put_half(block, scale);
    if (scale == 0) return;
    const Floats most = broadcast(127.0f), least = broadcast(-127.0f);
    for (int i = 0; i < 2; i++) {
        Floats quants = max(min(weights.half[i] / broadcast(scale), most), least);
        store_bytes(block + 2 + i * LANES, to_ints(quants), LANES);
    }
}

// The table's value that is nearest to each, or its index.
template <bool INDEX>
Floats nearest(const Floats &at) {
    Floats found = broadcast(INDEX ? 0.0f : IQ4_VALUES[0]);
    const Floats none = broadcast(0.0f);
    for (int i = 0; i < 15; i++) {
        const float lower = IQ4_VALUES[i], upper = IQ4_VALUES[i + 1];
        Mask is_above = less(broadcast((lower + upper) / 2), at);
        found = found + select(is_above, broadcast(INDEX ? 1.0f : upper - lower), none);
    }
    return found;
}

// The least-squares scale for the values that are nearest at a multiplier, errors weighed by the
// weights' squares, and by how much it is better than zero.
struct Scale {
    float value, gain;

    Scale(const Weights &weights, float multiplier) : value(0), gain(0) {
        Floats product = broadcast(0.0f), square = product;
        for (const Floats &x : weights.half) {
            Floats quants = nearest<false>(x * broadcast(multiplier)), by = x * x * quants;
            product = product + by * x, square = square + by * quants;
        }
        const float products = reduce_add(product), squares = reduce_add(square);
        if (squares <= 0) return;
        value = products / squares, gain = value * products;
    }
};

// As llama.cpp's reference searches (quantize_row_iq4_nl_impl): the farthest weight is near the
// table's first value.
float best_scale(const Weights &weights) {
    const float farthest = weights.farthest();
    if (std::fabs(farthest) < TINY) return 0;
    Scale best(weights, (IQ4_VALUES[0] - 7.0f) / farthest);
    for (int more = -6; more <= 7; more++) {
        const Scale other(weights, static_cast<float>(IQ4_VALUES[0] + more) / farthest);
        if (other.gain > best.gain) best = other;
    }
    return best.value;
}

void iq4_nl(const Weights &weights, uint8_t *block) {
    const float scale = from_half(to_half(best_scale(weights)));
    put_half(block, scale);
    if (scale == 0) return;
    Floats index[2];
    for (int i = 0; i < 2; i++) index[i] = nearest<true>(weights.half[i] / broadcast(scale));
    const Floats sixteen = broadcast(16.0f);
    const Floats upper = select(less(index[1], broadcast(8.0f)), index[1], index[1] - sixteen);
    store_bytes(block + 2, to_ints(index[0] + upper * sixteen), LANES);
}

}  // namespace

void quantise(Kind kind, const float *values, int k, uint8_t *blocks) {
    const bool is_8 = kind == Kind::q8_0;
    const int bytes = is_8 ? Layout<Kind::q8_0>::FILE_BYTES : Layout<Kind::iq4_nl>::FILE_BYTES;
    for (int begin = 0; begin < k; begin += BLOCK, blocks += bytes) {
        memset(blocks, 0, bytes);
        (is_8 ? q8_0 : iq4_nl)(Weights(values + begin, k - begin), blocks);
    }
}
