#include "gather.h"

namespace {

void transpose(__m512i (&rows)[16]) {
    __m512i t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(rows[i], rows[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        rows[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        rows[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        rows[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        rows[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(rows[i], rows[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(rows[i + 8], rows[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        rows[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        rows[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        rows[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        rows[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

}  // namespace

void widen_heads(const uint8_t *base, const int64_t *offsets, int count, int size,
                 int64_t *places, uint8_t *out) {
    for (int at = 0; at < round_up(count, LANES); at++) {
        if (at >= count) {
            places[at] = places[count - 1];
            continue;
        }
        const uint8_t *head = base + offsets[at];
        float scale;
        memcpy(&scale, head + size, sizeof scale);
        places[at] = static_cast<int64_t>(at) * size * sizeof(bf16);
        for (int i = 0; i < size; i += LANES) {
            __mmask16 mask = lanes_below(size - i);
            __m512 value = _mm512_cvtepi32_ps(
                _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, head + i)));
            _mm256_mask_storeu_epi16(out + places[at] + i * sizeof(bf16), mask,
                                     narrow(_mm512_mul_ps(value, _mm512_set1_ps(scale))));
        }
    }
}

void gather_keys(const uint8_t *base, const int64_t *offsets, int count, int words, uint8_t *out) {
    for (int first = 0; first < count; first += LANES) {
        for (int word = 0; word < words; word += LANES) {
            __mmask16 mask = lanes_below(words - word);
            __m512i rows[LANES];
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) {
                rows[i] = _mm512_maskz_loadu_epi32(mask, base + offsets[first + i] + 4 * word);
            }
            transpose(rows);
            uint8_t *to = out + (static_cast<size_t>(word) * SPAN + first) * 4;
#pragma GCC unroll 16
            for (int i = 0; i < LANES; i++) _mm512_store_si512(to + i * SPAN * 4, rows[i]);
        }
    }
}

void gather_values_fp32(const uint8_t *base, const int64_t *offsets, int count, int size,
                        int padded, uint8_t *out) {
    for (int at = 0; at < count; at++, out += 4 * padded) {
        for (int i = 0; i < padded; i += LANES) {
            __mmask16 mask = lanes_below(size - i);
            _mm512_store_si512(out + 4 * i,
                               _mm512_maskz_loadu_epi32(mask, base + offsets[at] + 4 * i));
        }
    }
}

void gather_values_bf16(const uint8_t *base, const int64_t *offsets, int count, int size,
                        int padded, uint8_t *out) {
    __m512i low, high;
    {
        alignas(64) uint16_t order[2][32];
        for (uint16_t i = 0; i < 32; i++) {
            order[0][i] = static_cast<uint16_t>(i / 2 + i % 2 * 32);
            order[1][i] = static_cast<uint16_t>(order[0][i] + 16);
        }
        low = _mm512_load_si512(order[0]), high = _mm512_load_si512(order[1]);
    }
    for (int at = 0; at < count; at += 2, out += 4 * padded) {
        for (int i = 0; i < padded; i += 32) {
            int left = size - i;
            __mmask32 mask = left >= 32 ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
            __m512i even = _mm512_maskz_loadu_epi16(mask, base + offsets[at] + 2 * i);
            __m512i odd = _mm512_maskz_loadu_epi16(mask, base + offsets[at + 1] + 2 * i);
            _mm512_store_si512(out + 4 * i, _mm512_permutex2var_epi16(even, low, odd));
            _mm512_store_si512(out + 4 * i + 64, _mm512_permutex2var_epi16(even, high, odd));
        }
    }
}
