// One register of eight lanes: AVX2, FMA and F16C, with AVX-VNNI where there is.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace native {

constexpr int LANES = 8;
using Floats = __m256;
using Ints = __m256i;
struct Mask {
    __m256 lanes;
};

#define DRAFTWERK_REGISTER "x"

// Floats.
inline Floats broadcast(float value) { return _mm256_set1_ps(value); }
inline Floats load(const float *from) { return _mm256_loadu_ps(from); }
inline void store(float *to, Floats value) { _mm256_storeu_ps(to, value); }
inline Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
inline Floats subtract(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
inline Floats multiply(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
inline Floats divide(Floats a, Floats b) { return _mm256_div_ps(a, b); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
inline Floats max(Floats a, Floats b) { return _mm256_max_ps(a, b); }
inline Floats min(Floats a, Floats b) { return _mm256_min_ps(a, b); }
inline Floats absolute(Floats a) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}
inline Floats nearest(Floats a) { return _mm256_round_ps(a, 8); }

inline Mask equal(Floats a, Floats b) { return {_mm256_cmp_ps(a, b, _CMP_EQ_OQ)}; }
inline Mask less(Floats a, Floats b) { return {_mm256_cmp_ps(a, b, _CMP_LT_OQ)}; }
inline Mask at_most(Floats a, Floats b) { return {_mm256_cmp_ps(a, b, _CMP_LE_OQ)}; }
inline uint32_t bits(Mask mask) { return static_cast<uint32_t>(_mm256_movemask_ps(mask.lanes)); }
inline Mask mask_of(uint32_t bits) {
    const __m256i each = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
    __m256i set = _mm256_and_si256(_mm256_set1_epi32(static_cast<int>(bits)), each);
    return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(set, each))};
}
inline Floats select(Mask mask, Floats yes, Floats no) {
    return _mm256_blendv_ps(no, yes, mask.lanes);
}

#define DRAFTWERK_PERMUTES_EIGHTS
template <int... FROM>
inline Floats permute_eights(Floats a) {
    return _mm256_permutevar8x32_ps(a, _mm256_setr_epi32(FROM...));
}

// Half the lanes at a time, down to one.
inline float reduce_add(Floats a) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float reduce_max(Floats a) {
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// Integers.
inline Ints broadcast(int32_t value) { return _mm256_set1_epi32(value); }
inline Ints load_ints(const void *from) {
    return _mm256_loadu_si256(static_cast<const __m256i *>(from));
}
inline void store(void *to, Ints value) {
    _mm256_storeu_si256(static_cast<__m256i *>(to), value);
}
inline Ints add(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
inline Ints multiply(Ints a, Ints b) { return _mm256_mullo_epi32(a, b); }
inline Ints bit_and(Ints a, Ints b) { return _mm256_and_si256(a, b); }
inline Ints bit_or(Ints a, Ints b) { return _mm256_or_si256(a, b); }
inline Ints bit_xor(Ints a, Ints b) { return _mm256_xor_si256(a, b); }
template <int N>
inline Ints shift_left(Ints a) { return _mm256_slli_epi32(a, N); }
template <int N>
inline Ints shift_right(Ints a) { return _mm256_srli_epi32(a, N); }
template <int N>
inline Ints shift_right_signed(Ints a) { return _mm256_srai_epi32(a, N); }
inline Mask equal(Ints a, Ints b) { return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b))}; }
inline Ints select(Mask mask, Ints yes, Ints no) {
    return _mm256_blendv_epi8(no, yes, _mm256_castps_si256(mask.lanes));
}
// The 64 bits of each unsigned product.
inline void multiply_wide(Ints value, uint32_t factor, Ints &high, Ints &low) {
    __m256i by = _mm256_set1_epi64x(factor);
    __m256i even = _mm256_mul_epu32(value, by);
    __m256i odd = _mm256_mul_epu32(_mm256_srli_epi64(value, 32), by);
    low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
    high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
}

// From one to the other.
inline Floats as_floats(Ints a) { return _mm256_castsi256_ps(a); }
inline Ints as_ints(Floats a) { return _mm256_castps_si256(a); }
inline Ints to_ints(Floats a) { return _mm256_cvtps_epi32(a); }
inline Floats to_floats(Ints a) { return _mm256_cvtepi32_ps(a); }
inline Floats unsigned_to_floats(Ints a) {
    // Both halves are exact, and the sum rounds once.
    Floats high = to_floats(_mm256_srli_epi32(a, 16));
    Floats low = to_floats(_mm256_and_si256(a, _mm256_set1_epi32(0xffff)));
    return fma(high, broadcast(65536.0f), low);
}
inline Floats load_halves(const uint16_t *from) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from)));
}

// The lower or the upper halves of lanes.
inline Floats low_halves(Ints a) {
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 0, 1, 4, 5, 8, 9, 12, 13, 0, 1,
                                           4, 5, 8, 9, 12, 13, 0, 1, 4, 5, 8, 9, 12, 13);
    __m256i halves = _mm256_permute4x64_epi64(_mm256_shuffle_epi8(a, order), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
}
inline Floats high_halves(Ints a) { return low_halves(_mm256_srli_epi32(a, 16)); }

inline Ints widened_bytes(uint64_t bytes) {
    return _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes)));
}
inline uint64_t saturated_bytes(Ints value) {
    __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(value),
                                    _mm256_extracti128_si256(value, 1));
    return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_packs_epi16(words, words)));
}
inline void store_upper_halves(uint16_t *to, Ints a) {
    __m256i words = _mm256_srli_epi32(a, 16);
    __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(words),
                                      _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i *>(to), packed);
}

// Sums of floats in double, eight of them.
struct Doubles {
    __m256d low = _mm256_setzero_pd(), high = _mm256_setzero_pd();
    void add(Floats a) {
        low = _mm256_add_pd(low, _mm256_cvtps_pd(_mm256_castps256_ps128(a)));
        high = _mm256_add_pd(high, _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1)));
    }
    void store(double *to) const {
        _mm256_storeu_pd(to, low);
        _mm256_storeu_pd(to + 4, high);
    }
};

// Register INDEX of sixteen lanes: the lower eight of one, the upper eight of the other.
template <int INDEX>
inline Floats halves_of(Floats low, Floats high) { return INDEX < 1 ? low : high; }

// Integer products of four weights (of eight bits, or nibbles) with four signed bytes.
#ifdef __AVXVNNI__
constexpr int WEIGHT_OFFSET = 128;  // weights are unsigned
constexpr bool PAIR_SUMS = false;
template <bool NIBBLES>
struct QuadWeights {
    Ints bytes;
    explicit QuadWeights(Ints bytes) : bytes(bytes) {}
};
template <bool NIBBLES>
struct QuadSum {
    Ints sum;
    // Not intrinsics, here and below: GCC keeps broadcasts, and sums of a tree, of more than there
    // are registers.
    void add(const QuadWeights<NIBBLES> &weights, const int8_t *quad) {
        Ints four;
        asm("vpbroadcastd %2, %1\n\t%{vex%} vpdpbusd %1, %3, %0"
            : "+x"(sum), "=&x"(four)
            : "m"(*reinterpret_cast<const int(*)[1]>(quad)), "x"(weights.bytes));
    }
    void add(const QuadWeights<NIBBLES> &weights, Ints quads) {
        asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(weights.bytes), "x"(quads));
    }
    Ints total() const { return sum; }
    static Ints scale(Ints lanes) { return lanes; }
    Ints total(Ints scale) const { return multiply(sum, scale); }
};
inline Ints eighth(Ints start) { return _mm256_srai_epi32(start, 3); }
#else
constexpr int WEIGHT_OFFSET = 0;    // weights are signed
constexpr bool PAIR_SUMS = true;    // of unsigned ones sums are of sixteen bits, two a lane
template <bool NIBBLES>
struct QuadWeights {
    Ints bytes, magnitudes;
    explicit QuadWeights(Ints from) : bytes(from), magnitudes(_mm256_abs_epi8(from)) {}
};
template <bool NIBBLES>
struct QuadSum {
    Ints sum;
    // Two products of at most 128 * 127 fit into sixteen bits, and sixteen of at most 16 * 127.
    void add(const QuadWeights<NIBBLES> &weights, const int8_t *quad) {
        const auto &four = *reinterpret_cast<const int(*)[1]>(quad);
        Ints pairs;
        if (NIBBLES) {
            asm("vpbroadcastd %2, %1\n\tvpmaddubsw %1, %3, %1\n\tvpaddw %1, %0, %0"
                : "+x"(sum), "=&x"(pairs)
                : "m"(four), "x"(weights.bytes));
        } else {
            asm("vpbroadcastd %2, %1\n\tvpsignb %3, %1, %1\n\tvpmaddubsw %1, %4, %1\n\t"
                "vpmaddwd %5, %1, %1\n\tvpaddd %1, %0, %0"
                : "+x"(sum), "=&x"(pairs)
                : "m"(four), "x"(weights.bytes), "x"(weights.magnitudes),
                  "x"(_mm256_set1_epi16(1)));
        }
    }
    void add(const QuadWeights<true> &weights, Ints quads) {
        Ints pairs;
        asm("vpmaddubsw %2, %3, %1\n\tvpaddw %1, %0, %0"
            : "+x"(sum), "=&x"(pairs)
            : "x"(quads), "x"(weights.bytes));
    }
    Ints total() const {
        return NIBBLES ? _mm256_madd_epi16(sum, _mm256_set1_epi16(1)) : sum;
    }
    // What `total` takes of whole numbers, of sixteen bits each.
    static Ints scale(Ints lanes) {
        return NIBBLES ? _mm256_blend_epi16(lanes, _mm256_slli_epi32(lanes, 16), 0xaa) : lanes;
    }
    Ints total(Ints scale) const {
        return NIBBLES ? _mm256_madd_epi16(sum, scale) : multiply(sum, scale);
    }
};
inline Ints eighth(Ints start) { return _mm256_srai_epi16(start, 3); }
#endif
inline Ints subtract_bytes(Ints bytes, int value) {
    return _mm256_sub_epi8(bytes, _mm256_set1_epi8(static_cast<char>(value)));
}
// Of each byte, below 16, what the table has.
inline Ints look_up(const int8_t *table, Ints bytes) {
    __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i *>(table));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), bytes);
}
inline Ints interleave_low(Ints a, Ints b) { return _mm256_unpacklo_epi8(a, b); }
inline Ints interleave_high(Ints a, Ints b) { return _mm256_unpackhi_epi8(a, b); }
template <int SHIFT>
inline Ints nibbles(Ints bytes) {
    return _mm256_and_si256(SHIFT ? _mm256_srli_epi16(bytes, SHIFT) : bytes,
                            _mm256_set1_epi8(0x0f));
}

inline void transpose(Ints (&rows)[LANES]) {
    __m256i t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_epi32(rows[i], rows[i + 1]);
        t[i + 1] = _mm256_unpackhi_epi32(rows[i], rows[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        rows[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        rows[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        rows[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        rows[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2x128_si256(rows[i], rows[i + 4], 0x20);
        t[i + 4] = _mm256_permute2x128_si256(rows[i], rows[i + 4], 0x31);
    }
    for (int i = 0; i < 8; i++) rows[i] = t[i];
}

// Transposes four words of four registers, in each 128 bits by themselves.
inline void transpose_quads(Ints &a, Ints &b, Ints &c, Ints &d) {
    Ints t0 = _mm256_unpacklo_epi32(a, b), t1 = _mm256_unpackhi_epi32(a, b);
    Ints t2 = _mm256_unpacklo_epi32(c, d), t3 = _mm256_unpackhi_epi32(c, d);
    a = _mm256_unpacklo_epi64(t0, t2), b = _mm256_unpackhi_epi64(t0, t2);
    c = _mm256_unpacklo_epi64(t1, t3), d = _mm256_unpackhi_epi64(t1, t3);
}

// even[0], odd[0], even[1], odd[1] ..
inline void store_interleaved(float *to, Floats even, Floats odd) {
    Floats low = _mm256_unpacklo_ps(even, odd), high = _mm256_unpackhi_ps(even, odd);
    store(to, _mm256_permute2f128_ps(low, high, 0x20));
    store(to + LANES, _mm256_permute2f128_ps(low, high, 0x31));
}

// Not the intrinsic: GCC removes calls of a function that does nothing else.
inline void prefetch(const uint8_t *from) { asm volatile("prefetcht1 %0" : : "m"(*from)); }

// What fits 16 registers: a tile of 48 columns is three panels, and twelve registers hold sums.
constexpr int PANEL = 16;
constexpr int ROWS = 6;
constexpr int WIDE_ROWS = 2;          // up to here a kernel takes all panels of a tile at once
constexpr int ATTENTION_ROWS = 6, ATTENTION_COLUMNS = 16;
constexpr int PEAK_CHAINS = 12;
constexpr bool HAS_TILES = false;
constexpr int STORED_ROWS = 4, STORED_DOTS = 4, STORED_HALVES = 8;

}  // namespace native
