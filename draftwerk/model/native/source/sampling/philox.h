// Philox 4x32-10, as in speculative/noise.py: the key is the seed, the counter is
// (token / 4, position, branch, 0), and word token % 4 is the token's.
#pragma once

#include "simd/elementary.h"
#include "simd/simd.h"

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

    double gumbel(uint32_t token) const {
        double uniform = (word(token) + 0.5) * 0x1p-32;
        return -elementary::log(-elementary::log(uniform));
    }

    // The four words of sixteen counters.
    void words(const Ints &token_quads, Ints (&out)[4]) const {
        Ints c0 = token_quads, c1 = broadcast(static_cast<int32_t>(position));
        Ints c2 = broadcast(static_cast<int32_t>(branch)), c3 = broadcast(0);
        uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
        for (int round = 0; round < ROUNDS; round++) {
            Ints high0, low0, high1, low1;
            multiply_wide(c0, MULTIPLIER0, high0, low0);
            multiply_wide(c2, MULTIPLIER1, high1, low1);
            c0 = high1 ^ c1 ^ broadcast(static_cast<int32_t>(k0));
            c1 = low1;
            c2 = high0 ^ c3 ^ broadcast(static_cast<int32_t>(k1));
            c3 = low0;
            k0 += WEYL0, k1 += WEYL1;
        }
        out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
    }

  private:
    static constexpr int ROUNDS = 10;
    static constexpr uint32_t MULTIPLIER0 = 0xD2511F53, MULTIPLIER1 = 0xCD9E8D57;
    static constexpr uint32_t WEYL0 = 0x9E3779B9, WEYL1 = 0xBB67AE85;
};
