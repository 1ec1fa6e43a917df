// What registers of every width do alike, in terms of a few moves that each has of its own.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace native {

// The first lanes only, zeros behind them. Masked moves of AVX are slow on many processors; odd
// ends are few.
#ifndef DRAFTWERK_MASKED_MOVES
inline Floats load_first(const float *from, int count) {
    if (count >= LANES) return load(from);
    float lanes[LANES] = {};
    if (count > 0) memcpy(lanes, from, count * sizeof(float));
    return load(lanes);
}
inline void store_first(float *to, Floats value, int count) {
    if (count >= LANES) return store(to, value);
    float lanes[LANES];
    store(lanes, value);
    if (count > 0) memcpy(to, lanes, count * sizeof(float));
}
inline Ints load_words(const void *from, int count) {
    return as_ints(load_first(static_cast<const float *>(from), count));
}
inline Ints load_bytes(const uint8_t *from, int count) {
    uint64_t bytes = 0;
    if (count > 0) memcpy(&bytes, from, std::min(count, LANES));
    return widened_bytes(bytes);
}
inline void store_bytes(uint8_t *to, Ints value, int count) {
    const uint64_t bytes = saturated_bytes(value);
    if (count > 0) memcpy(to, &bytes, std::min(count, LANES));
}
// For powers from -127, which gives zero, to 127.
inline Floats times_power_of_two(Floats a, Floats power) {
    Ints exponent = add(to_ints(power), broadcast(127));
    return multiply(a, as_floats(shift_left<23>(exponent)));
}
#endif

constexpr int32_t UPPER_HALF = static_cast<int32_t>(0xffff0000);

// bf16, nearest, ties to even.
inline Ints bf16_bits(Floats a) {  // in the upper halves
    Ints bits = as_ints(a);
    Ints odd = bit_and(shift_right<16>(bits), broadcast(1));
    return add(bits, add(odd, broadcast(0x7fff)));
}
inline Floats round_to_bf16(Floats a) {
    return as_floats(bit_and(bf16_bits(a), broadcast(UPPER_HALF)));
}
inline void store_bf16(uint16_t *to, Floats value) { store_upper_halves(to, bf16_bits(value)); }
inline void store_bf16_first(uint16_t *to, Floats value, int count) {
#ifdef DRAFTWERK_MASKED_MOVES
    store_upper_halves(to, bf16_bits(value), count);
#else
    if (count >= LANES) return store_bf16(to, value);
    uint16_t lanes[LANES];
    store_bf16(lanes, value);
    if (count > 0) memcpy(to, lanes, count * sizeof(uint16_t));
#endif
}

// Half of bf16 pairs as floats: 1 the upper ones.
inline Floats half_of_pairs(Ints both, int half) {
    return as_floats(half ? bit_and(both, broadcast(UPPER_HALF)) : shift_left<16>(both));
}
inline Floats half_of_pairs(const uint8_t *from, int half) {
    return half_of_pairs(load_ints(from), half);
}

// Without products of pairs, what every row brings to them is held as floats; what all rows share
// is unpacked. (BFDOT and BFMMLA of ARM round otherwise than two multiply-adds.)
#ifndef DRAFTWERK_MULTIPLIES_PAIRS
constexpr int HALVES = 2;
using PairElement = float;
inline Floats pairs_half(Ints pairs, int half) { return half_of_pairs(pairs, half); }
inline Floats broadcast_pair(const PairElement *from, int half) { return broadcast(from[half]); }
Floats crossed(const uint8_t *first, const uint8_t *second, int which);      // never called
#endif
inline auto load_pairs(const uint8_t *from, int half) {
    return pairs_half(load_ints(from), half);
}

// Sums of sixteen signed bytes: of those at 0 and 1 of each four, and of those at 2 and 3.
struct ByteSums {
    int lower, upper;
    int all() const { return lower + upper; }
};
inline ByteSums sums_of_sixteen(const int8_t *bytes) {
#ifdef __SSE2__
    const __m128i offset = _mm_set1_epi8(-128), pair = _mm_set1_epi32(0xffff);
    const __m128i unsigned_bytes =
        _mm_xor_si128(_mm_loadu_si128(reinterpret_cast<const __m128i *>(bytes)), offset);
    auto sum = [](__m128i of) {
        const __m128i halves = _mm_sad_epu8(of, _mm_setzero_si128());
        return _mm_cvtsi128_si32(_mm_add_epi32(halves, _mm_unpackhi_epi64(halves, halves)));
    };
    const int lower = sum(_mm_and_si128(unsigned_bytes, pair));
    return {lower - 8 * 128, sum(unsigned_bytes) - lower - 8 * 128};
#else
    ByteSums sums = {};
    for (int i = 0; i < 16; i += 4) {
        sums.lower += bytes[i] + bytes[i + 1], sums.upper += bytes[i + 2] + bytes[i + 3];
    }
    return sums;
#endif
}

inline Ints with_offset(Ints bytes) {
    return WEIGHT_OFFSET ? bit_xor(bytes, broadcast(static_cast<int32_t>(0x80808080))) : bytes;
}

}  // namespace native
