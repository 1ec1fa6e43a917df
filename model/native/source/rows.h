// The small operators between matrix products, one token's row at a time. A value is rounded to
// bf16 wherever Hugging Face's Llama, held in bf16, rounds it (ROUND); otherwise never.
#pragma once

#include <cmath>

#include "matrix.h"
#include "simd.h"

// out = in / rms(in) * weight, statistics in float.
template <bool ROUND>
void normalise(const float *in, const float *weight, int size, float epsilon, float *out) {
    __m512 squares = _mm512_setzero_ps();
    for (int i = 0; i < size; i += LANES) {
        __m512 x = _mm512_maskz_loadu_ps(lanes_below(size - i), in + i);
        squares = _mm512_fmadd_ps(x, x, squares);
    }
    float mean = _mm512_reduce_add_ps(squares) / static_cast<float>(size);
    __m512 factor = _mm512_set1_ps(1.0f / std::sqrt(mean + epsilon));
    for (int i = 0; i < size; i += LANES) {
        __mmask16 mask = lanes_below(size - i);
        __m512 x = rounded<ROUND>(_mm512_mul_ps(_mm512_maskz_loadu_ps(mask, in + i), factor));
        __m512 w = _mm512_maskz_loadu_ps(mask, weight + i);
        _mm512_mask_storeu_ps(out + i, mask, rounded<ROUND>(_mm512_mul_ps(x, w)));
    }
}

// Rotates the pairs (i, i + half) of one head in place.
template <bool ROUND>
void rotate(float *head, const float *cosine, const float *sine, int half) {
    for (int i = 0; i < half; i += LANES) {
        __mmask16 mask = lanes_below(half - i);
        __m512 c = _mm512_maskz_loadu_ps(mask, cosine + i);
        __m512 s = _mm512_maskz_loadu_ps(mask, sine + i);
        __m512 x = _mm512_maskz_loadu_ps(mask, head + i);
        __m512 y = _mm512_maskz_loadu_ps(mask, head + half + i);
        __m512 first = _mm512_sub_ps(rounded<ROUND>(_mm512_mul_ps(x, c)),
                                     rounded<ROUND>(_mm512_mul_ps(y, s)));
        __m512 second = _mm512_add_ps(rounded<ROUND>(_mm512_mul_ps(y, c)),
                                      rounded<ROUND>(_mm512_mul_ps(x, s)));
        _mm512_mask_storeu_ps(head + i, mask, rounded<ROUND>(first));
        _mm512_mask_storeu_ps(head + half + i, mask, rounded<ROUND>(second));
    }
}

// out = silu(gate) * up.
template <bool ROUND>
void gated(const float *gate, const float *up, int size, float *out) {
    for (int i = 0; i < size; i += LANES) {
        __m512 g = rounded<ROUND>(_mm512_loadu_ps(gate + i));
        __m512 u = rounded<ROUND>(_mm512_loadu_ps(up + i));
        __m512 e = exponential(_mm512_sub_ps(_mm512_setzero_ps(), g));
        __m512 silu = rounded<ROUND>(_mm512_div_ps(g, _mm512_add_ps(e, _mm512_set1_ps(1.0f))));
        _mm512_storeu_ps(out + i, rounded<ROUND>(_mm512_mul_ps(silu, u)));
    }
}

// x += product.
template <bool ROUND>
void add(const float *product, int size, float *x) {
    for (int i = 0; i < size; i += LANES) {
        __m512 p = rounded<ROUND>(_mm512_loadu_ps(product + i));
        _mm512_storeu_ps(x + i, rounded<ROUND>(_mm512_add_ps(_mm512_loadu_ps(x + i), p)));
    }
}

// Signed bytes, the largest 127, and then what scales them.
inline void store_scaled(const float *head, int size, uint8_t *to) {
    __m512 most = _mm512_setzero_ps();
    for (int i = 0; i < size; i += LANES) {
        __m512 value = _mm512_maskz_loadu_ps(lanes_below(size - i), head + i);
        most = _mm512_max_ps(most, _mm512_abs_ps(value));
    }
    float scale = _mm512_reduce_max_ps(most) / 127.0f;
    __m512 inverse = _mm512_set1_ps(scale > 0 ? 1.0f / scale : 0.0f);
    for (int i = 0; i < size; i += LANES) {
        __mmask16 mask = lanes_below(size - i);
        __m512 value = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, head + i), inverse);
        _mm_mask_storeu_epi8(to + i, mask, _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(value)));
    }
    memcpy(to + size, &scale, sizeof scale);
}

// Writes one head's key or value into the pages.
inline void store_kv(const float *head, int size, Format format, void *to) {
    if (format == Format::int8) return store_scaled(head, size, static_cast<uint8_t *>(to));
    for (int i = 0; i < size; i += LANES) {
        __mmask16 mask = lanes_below(size - i);
        __m512 value = _mm512_maskz_loadu_ps(mask, head + i);
        if (format == Format::fp32) {
            _mm512_mask_storeu_ps(static_cast<float *>(to) + i, mask, value);
        } else {
            _mm256_mask_storeu_epi16(static_cast<bf16 *>(to) + i, mask, narrow(value));
        }
    }
}
