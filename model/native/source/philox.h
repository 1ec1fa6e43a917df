// Philox 4x32-10, as in speculative/noise.py: the key is the seed, the counter is
// (token / 4, position, branch, 0), and word token % 4 is the token's.
#pragma once

#include <cmath>

#include "simd.h"

struct Noise {
    uint64_t seed;
    uint32_t branch, position;

    uint32_t word(uint32_t token) const {
        uint32_t c0 = token / 4, c1 = position, c2 = branch, c3 = 0;
        uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
        for (int round = 0; round < ROUNDS; round++) {
            uint64_t p0 = uint64_t{MULTIPLIER0} * c0, p1 = uint64_t{MULTIPLIER1} * c2;
            c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
            c1 = static_cast<uint32_t>(p1);
            c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
            c3 = static_cast<uint32_t>(p0);
            k0 += WEYL0, k1 += WEYL1;
        }
        uint32_t words[] = {c0, c1, c2, c3};
        return words[token % 4];
    }

    // The logarithms of the C library, which are Python's: the same noise to the last bit.
    double gumbel(uint32_t token) const {
        double uniform = (word(token) + 0.5) * 0x1p-32;
        return -std::log(-std::log(uniform));
    }

    // The four words of sixteen counters.
    void words(__m512i token_quads, __m512i (&out)[4]) const {
        __m512i c0 = token_quads, c1 = _mm512_set1_epi32(static_cast<int>(position));
        __m512i c2 = _mm512_set1_epi32(static_cast<int>(branch)), c3 = _mm512_setzero_si512();
        uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
        for (int round = 0; round < ROUNDS; round++) {
            __m512i high0, low0, high1, low1;
            multiply(c0, MULTIPLIER0, high0, low0);
            multiply(c2, MULTIPLIER1, high1, low1);
            c0 = _mm512_ternarylogic_epi32(high1, c1, _mm512_set1_epi32(static_cast<int>(k0)),
                                           0x96);
            c1 = low1;
            c2 = _mm512_ternarylogic_epi32(high0, c3, _mm512_set1_epi32(static_cast<int>(k1)),
                                           0x96);
            c3 = low0;
            k0 += WEYL0, k1 += WEYL1;
        }
        out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
    }

  private:
    static constexpr int ROUNDS = 10;
    static constexpr uint32_t MULTIPLIER0 = 0xD2511F53, MULTIPLIER1 = 0xCD9E8D57;
    static constexpr uint32_t WEYL0 = 0x9E3779B9, WEYL1 = 0xBB67AE85;

    static void multiply(__m512i value, uint32_t factor, __m512i &high, __m512i &low) {
        __m512i by = _mm512_set1_epi64(factor);
        __m512i even = _mm512_mul_epu32(value, by);
        __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(value, 32), by);
        low = _mm512_mask_mov_epi32(even, 0xaaaa, _mm512_slli_epi64(odd, 32));
        high = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xaaaa, odd);
    }
};
