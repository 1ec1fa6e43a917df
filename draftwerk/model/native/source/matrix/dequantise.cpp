// The values that GGUF's types define, as its reference reader has them, bit for bit.
#include <algorithm>
#include <cstring>

#include "matrix/half.h"
#include "matrix/stored.h"

namespace {

float half_at(const uint8_t *from) {
    uint16_t half;
    memcpy(&half, from, sizeof half);
    return from_half(half);
}
uint32_t word_at(const uint8_t *from) {
    uint32_t word;
    memcpy(&word, from, sizeof word);
    return word;
}
int nibble(uint8_t byte, bool upper) { return upper ? byte >> 4 : byte & 15; }

// The weights of 32 inputs of which two share a byte, the second sixteen in the upper nibbles.
template <class Value>
void halves_of_sixteen(float *values, Value value) {
    for (int i = 0; i < 32; i++) values[i] = value(i, i % 16, i >= 16);
}

// The six bits of a scale or minimum of Q4_K and Q5_K: eight scales, then eight minima.
int six_bits(const uint8_t *scales, int index) {
    int which = index / 8, j = index % 8;
    if (j < 4) return scales[4 * which + j] & 63;
    int low = nibble(scales[8 + j - 4], which == 1);
    return low | scales[4 * which + j - 4] >> 6 << 4;
}
// Of Q3_K: the low bits are in eight bytes of two, the high ones in four bytes of four.
int third_scale(const uint8_t *scales, int index) {
    int low = nibble(scales[index % 8], index >= 8);
    return (low | (scales[8 + index % 4] >> index / 4 * 2 & 3) << 4) - 32;
}
float exponent_value(uint8_t exponent) {
    uint32_t bits = exponent < 2 ? 0x00200000u << exponent : (exponent - 1u) << 23;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void q4_0(const uint8_t *from, float *to) {
    halves_of_sixteen(to, [&, d = half_at(from)](int, int byte, bool upper) {
        return d * static_cast<float>(nibble(from[2 + byte], upper) - 8);
    });
}
void q4_1(const uint8_t *from, float *to) {
    float d = half_at(from), m = half_at(from + 2);
    halves_of_sixteen(to, [&](int, int byte, bool upper) {
        return d * static_cast<float>(nibble(from[4 + byte], upper)) + m;
    });
}
void q5_0(const uint8_t *from, float *to) {
    float d = half_at(from);
    halves_of_sixteen(to, [&, fifth = word_at(from + 2)](int i, int byte, bool upper) {
        int q = nibble(from[6 + byte], upper) | (fifth >> i & 1) << 4;
        return d * static_cast<float>(q - 16);
    });
}
void q5_1(const uint8_t *from, float *to) {
    float d = half_at(from), m = half_at(from + 2);
    halves_of_sixteen(to, [&, fifth = word_at(from + 4)](int i, int byte, bool upper) {
        int q = nibble(from[8 + byte], upper) | (fifth >> i & 1) << 4;
        return d * static_cast<float>(q) + m;
    });
}
void q8_0(const uint8_t *from, float *to) {
    float d = half_at(from);
    for (int i = 0; i < 32; i++) to[i] = d * static_cast<float>(static_cast<int8_t>(from[2 + i]));
}
void iq4(float d, const uint8_t *from, float *to) {
    halves_of_sixteen(to, [&](int, int byte, bool upper) {
        return d * static_cast<float>(IQ4_VALUES[nibble(from[byte], upper)]);
    });
}
void iq4_nl(const uint8_t *from, float *to) { iq4(half_at(from), from + 2, to); }
void iq4_xs(const uint8_t *from, float *to) {
    float d = half_at(from);
    int high = from[2] | from[3] << 8;
    for (int j = 0; j < 8; j++) {
        int scale = nibble(from[4 + j / 2], j % 2) | (high >> 2 * j & 3) << 4;
        iq4(d * static_cast<float>(scale - 32), from + 8 + 16 * j, to + 32 * j);
    }
}
void q2_k(const uint8_t *from, float *to) {
    float d = half_at(from + 80), dmin = half_at(from + 82);
    for (int i = 0; i < 256; i++) {
        uint8_t scale = from[i / 16];
        int q = from[16 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
        to[i] = d * static_cast<float>(scale & 15) * static_cast<float>(q) -
                dmin * static_cast<float>(scale >> 4);
    }
}
void q3_k(const uint8_t *from, float *to) {
    float d = half_at(from + 108);
    for (int i = 0; i < 256; i++) {
        int q = from[32 + i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
        int third = from[i % 32] >> i / 32 & 1;
        to[i] = d * static_cast<float>(third_scale(from + 96, i / 16)) *
                static_cast<float>(q + 4 * third - 4);
    }
}
// Q4_K, and with `fifth` Q5_K.
void q4_k_or_q5_k(const uint8_t *from, const uint8_t *fifth, const uint8_t *quants, float *to) {
    float d = half_at(from), dmin = half_at(from + 2);
    for (int i = 0; i < 256; i++) {
        int j = i / 32, q = nibble(quants[i / 64 * 32 + i % 32], j % 2);
        if (fifth) q |= (fifth[i % 32] >> j & 1) << 4;
        to[i] = d * static_cast<float>(six_bits(from + 4, j)) * static_cast<float>(q) -
                dmin * static_cast<float>(six_bits(from + 4, 8 + j));
    }
}
void q6_k(const uint8_t *from, float *to) {
    float d = half_at(from + 208);
    for (int i = 0; i < 256; i++) {
        int half = i / 128, quarter = i % 128 / 32, at = i % 32;
        int low = nibble(from[64 * half + quarter % 2 * 32 + at], quarter >= 2);
        int high = from[128 + 32 * half + at] >> 2 * quarter & 3;
        to[i] = d * static_cast<float>(static_cast<int8_t>(from[192 + i / 16])) *
                static_cast<float>((low | high << 4) - 32);
    }
}
// Four blocks.
void mxfp4(const uint8_t *from, float *to) {
    for (int block = 0; block < 4; block++, from += 17, to += 32) {
        halves_of_sixteen(to, [&, d = exponent_value(from[0])](int, int byte, bool upper) {
            return d * static_cast<float>(MXFP4_VALUES[nibble(from[1 + byte], upper)]);
        });
    }
}

float number_at(const uint8_t *from) {
    float value;
    memcpy(&value, from, sizeof value);
    return value;
}
void f32(const uint8_t *from, float *to) { memcpy(to, from, 32 * sizeof(float)); }
void f16(const uint8_t *from, float *to) {
    for (int i = 0; i < 32; i++) to[i] = half_at(from + 2 * i);
}
void bf16_values(const uint8_t *from, float *to) {
    for (int i = 0; i < 32; i++) {
        uint8_t wide[4] = {0, 0, from[2 * i], from[2 * i + 1]};
        to[i] = number_at(wide);
    }
}
void g4(const uint8_t *from, int inputs, float *to) {
    const uint8_t upper[4] = {0, from[1], from[2], from[3]};
    const float d = number_at(upper), zero = d * static_cast<float>(from[0]);
    for (int begin = 0; begin < inputs; begin += 32) {
        halves_of_sixteen(to + begin, [&](int, int byte, bool high) {
            int q = nibble(from[4 + begin / 2 + byte], high);
            return d * static_cast<float>(q) - zero;    // exact
        });
    }
}
void g8(const uint8_t *from, float *to) {
    for (int i = 0; i < 128; i++) {
        to[i] = number_at(from) * static_cast<float>(static_cast<int8_t>(from[4 + i]));
    }
}
void f8(const uint8_t *from, float *to) {
    const float d = number_at(from) * 256.0f;    // of the same bits a half is a 256th
    for (int i = 0; i < 128; i++) {
        uint8_t byte = from[4 + i];
        to[i] = d * from_half(static_cast<uint16_t>((byte & 128) << 8 | (byte & 127) << 7));
    }
}

void unit(Kind kind, const uint8_t *from, float *to) {
    switch (kind) {
        case Kind::q4_0: return q4_0(from, to);
        case Kind::q4_1: return q4_1(from, to);
        case Kind::q5_0: return q5_0(from, to);
        case Kind::q5_1: return q5_1(from, to);
        case Kind::q8_0: return q8_0(from, to);
        case Kind::q2_k: return q2_k(from, to);
        case Kind::q3_k: return q3_k(from, to);
        case Kind::q4_k: return q4_k_or_q5_k(from, nullptr, from + 16, to);
        case Kind::q5_k: return q4_k_or_q5_k(from, from + 16, from + 48, to);
        case Kind::q6_k: return q6_k(from, to);
        case Kind::iq4_nl: return iq4_nl(from, to);
        case Kind::iq4_xs: return iq4_xs(from, to);
        case Kind::mxfp4: return mxfp4(from, to);
        case Kind::f32: return f32(from, to);
        case Kind::f16: return f16(from, to);
        case Kind::bf16: return bf16_values(from, to);
        case Kind::g4_32: return g4(from, 32, to);
        case Kind::g4_128: return g4(from, 128, to);
        case Kind::g8_128: return g8(from, to);
        case Kind::f8_128: return f8(from, to);
    }
}

}  // namespace

void dequantise(Kind kind, const uint8_t *blocks, int k, float *values) {
    with_layout(kind, [&](auto of) {
        using Of = decltype(of);
        for (int begin = 0; begin < k; begin += Of::INPUTS, blocks += Of::FILE_BYTES) {
            float whole[Of::INPUTS];
            int count = k - begin < Of::INPUTS ? k - begin : Of::INPUTS;
            // A row may end within a unit of several blocks, or of numbers.
            uint8_t block[Of::FILE_BYTES] = {};
            memcpy(block, blocks, static_cast<size_t>(Of::FILE_BYTES) * count / Of::INPUTS);
            unit(kind, block, whole);
            std::copy_n(whole, count, values + begin);
        }
    });
}
