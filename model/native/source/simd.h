// Vectors of 16 lanes. Every function is a fixed sequence of operations on each lane, which is what
// makes a row's bits independent of its neighbours; the build forbids the compiler to fuse a*b+c.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

using bf16 = uint16_t;

constexpr int LANES = 16;

constexpr int round_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

inline __mmask16 lanes_below(int count) {
    return count >= LANES ? 0xffff : static_cast<__mmask16>((1u << (count < 0 ? 0 : count)) - 1);
}

inline float widen(bf16 value) {
    uint32_t bits = static_cast<uint32_t>(value) << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}

inline __m512 widen(__m256i value) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(value), 16));
}

inline __m256i narrow(__m512 value) {
#ifdef __AVX512BF16__
    return (__m256i)_mm512_cvtneps_pbh(value);
#else
    __m512i bits = _mm512_castps_si512(value);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
#endif
}

// What a model held in bf16 does to each intermediate value; the identity in the other formats.
template <bool ROUND>
inline __m512 rounded(__m512 value) {
    return ROUND ? widen(narrow(value)) : value;
}

// acc[i] += a[2i] * b[2i] + a[2i + 1] * b[2i + 1], for bf16 pairs.
inline __m512 dot_pairs(__m512 acc, __m512i a, __m512i b) {
#ifdef __AVX512BF16__
    return _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b);
#else
    const __m512i high = _mm512_set1_epi32(static_cast<int>(0xffff0000));
    acc = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(a, high)),
                          _mm512_castsi512_ps(_mm512_and_si512(b, high)), acc);
    return _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)),
                           _mm512_castsi512_ps(_mm512_slli_epi32(b, 16)), acc);
#endif
}

// acc[i] += sum of four products of unsigned with signed bytes; exact, so any kernel agrees.
inline __m512i dot_quads(__m512i acc, __m512i unsigned_bytes, __m512i signed_bytes) {
#ifdef __AVX512VNNI__
    // Not the intrinsic: with it GCC 12 moves two dozen accumulators to the stack and back.
    asm("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(unsigned_bytes), "v"(signed_bytes));
    return acc;
#else
    const __m512i low = _mm512_set1_epi16(0xff);
    __m512i even = _mm512_madd_epi16(
        _mm512_and_si512(unsigned_bytes, low),
        _mm512_srai_epi16(_mm512_slli_epi16(signed_bytes, 8), 8));
    __m512i odd = _mm512_madd_epi16(
        _mm512_srli_epi16(unsigned_bytes, 8), _mm512_srai_epi16(signed_bytes, 8));
    return _mm512_add_epi32(acc, _mm512_add_epi32(even, odd));
#endif
}

inline int32_t load_int(const void *from) {
    int32_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

// e**x to about one unit in the last place; 0 far below, infinity never (x is at most 88).
inline __m512 exponential(__m512 x) {
    x = _mm512_max_ps(_mm512_min_ps(x, _mm512_set1_ps(88.0f)), _mm512_set1_ps(-104.0f));
    __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 8);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
    __m512 p = _mm512_set1_ps(1.9875691500e-4f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1f));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, _mm512_set1_ps(1.0f)));
    return _mm512_scalef_ps(p, n);
}

inline float exponential(float x) { return _mm512_cvtss_f32(exponential(_mm512_set1_ps(x))); }
