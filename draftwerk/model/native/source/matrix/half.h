// Half precision, in which scales and minima of blocks are held: nearest, ties to even.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

inline uint16_t to_half(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00);
    if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);
    if (magnitude < 0x38800000) {  // denormal: whole multiples of 2^-24
        return static_cast<uint16_t>(sign | std::lrint(std::fabs(value) * 0x1p24f));
    }
    uint32_t rounded = magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1);
    return static_cast<uint16_t>(sign | rounded >> 13);
}

inline float from_half(uint16_t half) {
    uint32_t magnitude = half & 0x7fff, bits;
    float value;
    if (magnitude < 0x400) {
        value = static_cast<float>(magnitude) * 0x1p-24f;
    } else {
        bits = (magnitude << 13) + ((magnitude >= 0x7c00 ? 224u : 112u) << 23);
        memcpy(&value, &bits, sizeof value);
    }
    return half & 0x8000 ? -value : value;
}
