// Numbers in four or five bits: their levels are chosen together.
//
// There are four times as many levels as codes, and which of them a code means depends on the codes
// before: a bit u of each number goes into a shift register, and that bit and the last three tell
// which of eight subsets of the levels the others, a rank, choose from (trellis-coded quantisation,
// Marcellin and Fischer, 1990). For normal numbers the error is two thirds of that of as many bits
// alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "simd/simd.h"

namespace trellis {

constexpr int CODES_MAX = 1024;
constexpr int STATES = 8;      // the last three u, the latest lowest
constexpr int RUN = 32;        // numbers behind which the register is empty again

// Of the numbers from `first` on, a multiple of 2 RUN: how many have a run of their own.
constexpr int run_at(int first, int size) { return std::min(RUN, (size - first) / 2); }

struct Codes {
    uint8_t ranks[CODES_MAX], bits[CODES_MAX];
    float levels[CODES_MAX];
};

// Chooses the codes of a key in five bits and a value in four, with the least errors.
void choose(const float *key, const float *value, int size, Codes &keys, Codes &values);

// The upper halves of levels, as bf16; the lower ones are their negatives. They are those that
// round normal numbers best (Lloyd, Max).
constexpr std::array<uint16_t, 64> FINE = {
    0x3c25, 0x3cf8, 0x3d4f, 0x3d91, 0x3dba, 0x3de4, 0x3e07, 0x3e1c, 0x3e31, 0x3e46, 0x3e5b,
    0x3e70, 0x3e83, 0x3e8e, 0x3e98, 0x3ea3, 0x3eae, 0x3eba, 0x3ec5, 0x3ed0, 0x3edc, 0x3ee8,
    0x3ef3, 0x3eff, 0x3f06, 0x3f0c, 0x3f12, 0x3f19, 0x3f20, 0x3f27, 0x3f2e, 0x3f35, 0x3f3c,
    0x3f44, 0x3f4c, 0x3f54, 0x3f5d, 0x3f66, 0x3f6f, 0x3f79, 0x3f82, 0x3f87, 0x3f8d, 0x3f92,
    0x3f99, 0x3f9f, 0x3fa6, 0x3fae, 0x3fb6, 0x3fbe, 0x3fc7, 0x3fd1, 0x3fdb, 0x3fe7, 0x3ff3,
    0x4000, 0x4007, 0x400f, 0x4019, 0x4023, 0x402f, 0x403f, 0x4053, 0x4072};
constexpr std::array<uint16_t, 32> COARSE = {
    0x3cca, 0x3d97, 0x3dfd, 0x3e32, 0x3e66, 0x3e8d, 0x3ea8, 0x3ec4, 0x3ee0, 0x3efd, 0x3f0d,
    0x3f1d, 0x3f2d, 0x3f3e, 0x3f50, 0x3f62, 0x3f75, 0x3f85, 0x3f90, 0x3f9b, 0x3fa7, 0x3fb4,
    0x3fc2, 0x3fd1, 0x3fe1, 0x3ff4, 0x4004, 0x400f, 0x401d, 0x402d, 0x4043, 0x4064};

// Subset s has each eighth level from s on, and branches have labels: bit 0 is u xor that before
// the last three, then the last and the one before. That order reversed is the subset, so that the
// two subsets a state may choose from are as far apart as can be.
constexpr int label_of(int subset) {
    return (subset & 1) << 2 | (subset & 2) | (subset >> 2 & 1);
}
template <size_t HALF>
constexpr uint16_t level_of(const std::array<uint16_t, HALF> &upper, int label, int rank) {
    const int at = STATES * rank + label_of(label), half = HALF;
    return at >= half ? upper[at - half] : static_cast<uint16_t>(upper[half - 1 - at] | 0x8000);
}

// As they are looked up: three bits of the rank, the label's, and the rank's fourth.
template <size_t HALF>
constexpr auto table_of(const std::array<uint16_t, HALF> &upper) {
    std::array<uint16_t, 2 * HALF> table{};
    for (int at = 0; at < static_cast<int>(2 * HALF); at++) {
        table[at] = level_of(upper, at >> 3 & 7, (at & 7) | at >> 6 << 3);
    }
    return table;
}
constexpr auto FINE_LEVELS = table_of(FINE);
constexpr auto COARSE_LEVELS = table_of(COARSE);

// A byte has the codes of two runs' numbers: u is bit 3 of each. Fine ones have the rank's fourth
// bit apart.
inline void pack(const Codes &codes, int size, uint8_t *to) {
    for (int first = 0; first < size; first += 2 * RUN) {
        const int run = run_at(first, size);
        auto code = [&](int at) { return (codes.ranks[at] & 7) | codes.bits[at] << 3; };
        for (int i = first; i < first + run; i++) {
            *to++ = static_cast<uint8_t>(code(i) | code(i + run) << 4);
        }
    }
}

// The levels as bf16.
template <bool IS_FINE>
inline void widen(const uint8_t *packed, const uint8_t *fourths, int size, uint8_t *out) {
    for (int first = 0; first < size; first += 2 * RUN) {
        native::look_up_words<IS_FINE>(IS_FINE ? FINE_LEVELS.data() : COARSE_LEVELS.data(),
                                       packed + first / 2, run_at(first, size),
                                       IS_FINE ? fourths + first / 8 : nullptr,
                                       out + first * sizeof(bf16));
    }
}

}  // namespace trellis
