// One register of sixteen lanes: AVX-512 F, BW, DQ and VL, with BF16 and VNNI where they are.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace native {

constexpr int LANES = 16;
using Floats = __m512;
using Ints = __m512i;
struct Mask {
    __mmask16 bits;
};

#define DRAFTWERK_REGISTER "v"
#define DRAFTWERK_MASKED_MOVES

inline __mmask16 first(int count) {
    return count >= LANES ? 0xffff : static_cast<__mmask16>((1u << (count < 0 ? 0 : count)) - 1);
}

// Floats.
inline Floats broadcast(float value) { return _mm512_set1_ps(value); }
inline Floats load(const float *from) { return _mm512_loadu_ps(from); }
inline void store(float *to, Floats value) { _mm512_storeu_ps(to, value); }
inline Floats load_first(const float *from, int count) {
    return _mm512_maskz_loadu_ps(first(count), from);
}
inline void store_first(float *to, Floats value, int count) {
    _mm512_mask_storeu_ps(to, first(count), value);
}
inline Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
inline Floats subtract(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
inline Floats multiply(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
inline Floats divide(Floats a, Floats b) { return _mm512_div_ps(a, b); }
inline Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
inline Floats max(Floats a, Floats b) { return _mm512_max_ps(a, b); }
inline Floats min(Floats a, Floats b) { return _mm512_min_ps(a, b); }
inline Floats absolute(Floats a) { return _mm512_abs_ps(a); }
inline Floats nearest(Floats a) { return _mm512_roundscale_ps(a, 8); }
inline Floats times_power_of_two(Floats a, Floats power) { return _mm512_scalef_ps(a, power); }

inline Mask equal(Floats a, Floats b) { return {_mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ)}; }
inline Mask less(Floats a, Floats b) { return {_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ)}; }
inline Mask at_most(Floats a, Floats b) { return {_mm512_cmp_ps_mask(a, b, _CMP_LE_OQ)}; }
inline uint32_t bits(Mask mask) { return mask.bits; }
inline Mask mask_of(uint32_t bits) { return {static_cast<__mmask16>(bits)}; }
inline Floats select(Mask mask, Floats yes, Floats no) {
    return _mm512_mask_mov_ps(no, mask.bits, yes);
}

#define DRAFTWERK_PERMUTES_EIGHTS
template <int... FROM>
inline Floats permute_eights(Floats a) {
    alignas(64) static constexpr int from[] = {FROM..., (FROM + 8)...};
    return _mm512_permutexvar_ps(_mm512_load_si512(from), a);
}

// Half the lanes at a time, down to one.
inline float reduce_add(Floats a) {
    __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
inline float reduce_max(Floats a) { return _mm512_reduce_max_ps(a); }

// Integers.
inline Ints broadcast(int32_t value) { return _mm512_set1_epi32(value); }
inline Ints load_ints(const void *from) { return _mm512_loadu_si512(from); }
inline Ints load_words(const void *from, int count) {
    return _mm512_maskz_loadu_epi32(first(count), from);
}
inline void store(void *to, Ints value) { _mm512_storeu_si512(to, value); }
inline Ints add(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
inline Ints multiply(Ints a, Ints b) { return _mm512_mullo_epi32(a, b); }
inline Ints bit_or(Ints a, Ints b) { return _mm512_or_si512(a, b); }
inline Ints bit_and(Ints a, Ints b) { return _mm512_and_si512(a, b); }
inline Ints bit_xor(Ints a, Ints b) { return _mm512_xor_si512(a, b); }
template <int N>
inline Ints shift_left(Ints a) { return _mm512_slli_epi32(a, N); }
template <int N>
inline Ints shift_right(Ints a) { return _mm512_srli_epi32(a, N); }
template <int N>
inline Ints shift_right_signed(Ints a) { return _mm512_srai_epi32(a, N); }
inline Mask equal(Ints a, Ints b) { return {_mm512_cmpeq_epi32_mask(a, b)}; }
inline Ints select(Mask mask, Ints yes, Ints no) {
    return _mm512_mask_mov_epi32(no, mask.bits, yes);
}
// The 64 bits of each unsigned product.
inline void multiply_wide(Ints value, uint32_t factor, Ints &high, Ints &low) {
    __m512i by = _mm512_set1_epi64(factor);
    __m512i even = _mm512_mul_epu32(value, by);
    __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(value, 32), by);
    low = _mm512_mask_mov_epi32(even, 0xaaaa, _mm512_slli_epi64(odd, 32));
    high = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xaaaa, odd);
}

// From one to the other.
inline Floats as_floats(Ints a) { return _mm512_castsi512_ps(a); }
inline Ints as_ints(Floats a) { return _mm512_castps_si512(a); }
inline Ints to_ints(Floats a) { return _mm512_cvtps_epi32(a); }
inline Floats to_floats(Ints a) { return _mm512_cvtepi32_ps(a); }
inline Floats unsigned_to_floats(Ints a) { return _mm512_cvtepu32_ps(a); }
inline Floats load_halves(const uint16_t *from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(from)));
}
// The lower or the upper halves of lanes.
inline Floats low_halves(Ints a) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)); }
inline Floats high_halves(Ints a) { return low_halves(_mm512_srli_epi32(a, 16)); }
inline Ints load_bytes(const uint8_t *from, int count) {
    return _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(first(count), from));
}
inline void store_bytes(uint8_t *to, Ints value, int count) {
    _mm_mask_storeu_epi8(to, first(count), _mm512_cvtsepi32_epi8(value));
}

inline __m256i upper_halves(Ints a) { return _mm512_cvtepi32_epi16(_mm512_srli_epi32(a, 16)); }
inline void store_upper_halves(uint16_t *to, Ints a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i *>(to), upper_halves(a));
}
inline void store_upper_halves(uint16_t *to, Ints a, int count) {
    _mm256_mask_storeu_epi16(to, first(count), upper_halves(a));
}

// Sums of floats in double, sixteen of them.
struct Doubles {
    __m512d low = _mm512_setzero_pd(), high = _mm512_setzero_pd();
    void add(Floats a) {
        low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(a)));
        high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(a, 1)));
    }
    void store(double *to) const {
        _mm512_storeu_pd(to, low);
        _mm512_storeu_pd(to + 8, high);
    }
};

// Products of bf16 pairs. VDPBF16PS adds the product of the upper halves, then that of the lower
// ones, each rounded once: what two multiply-adds do, because no operand is tiny.
#ifdef __AVX512BF16__
#define DRAFTWERK_MULTIPLIES_PAIRS
constexpr int HALVES = 1;
using PairElement = uint16_t;
inline Ints pairs_half(Ints pairs, int) { return pairs; }
inline Ints broadcast_pair(const PairElement *from, int) {
    int32_t pair;
    memcpy(&pair, from, sizeof pair);
    return _mm512_set1_epi32(pair);
}
inline Floats fma(Ints a, Ints b, Floats c) {
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
}
// Pairs of the lower (0) or the upper halves of two registers of words.
inline Ints crossed(const uint8_t *first, const uint8_t *second, int which) {
    const Ints a = load_ints(first), b = load_ints(second);
    return which ? _mm512_mask_mov_epi16(_mm512_srli_epi32(a, 16), 0xaaaaaaaa, b)
                 : _mm512_mask_mov_epi16(a, 0xaaaaaaaa, _mm512_slli_epi32(b, 16));
}
#endif

// Register INDEX of sixteen lanes: the lower eight of one, the upper eight of the other.
template <int INDEX>
inline Floats halves_of(Floats low, Floats high) { return _mm512_mask_mov_ps(low, 0xff00, high); }
template <int INDEX>
inline Ints halves_of(Ints low, Ints high) { return _mm512_mask_mov_epi32(low, 0xff00, high); }

// Integer products of four weights (of eight bits, or nibbles) with four signed bytes.
#ifdef __AVX512VNNI__
constexpr int WEIGHT_OFFSET = 128;  // weights are unsigned
constexpr bool PAIR_SUMS = false;
constexpr bool HAS_TILES = true;     // builds that may use AMX, where it is
template <bool NIBBLES>
struct QuadWeights {
    Ints bytes;
    explicit QuadWeights(Ints bytes) : bytes(bytes) {}
};
template <bool NIBBLES>
struct QuadSum {
    Ints sum;
    // Not the intrinsic: with it GCC 12 moves two dozen accumulators to the stack and back.
    void add(const QuadWeights<NIBBLES> &weights, const int8_t *quad) {
        asm("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(weights.bytes), "m"(*reinterpret_cast<const int(*)[1]>(quad)));
    }
    void add(const QuadWeights<NIBBLES> &weights, Ints quads) {
        asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(weights.bytes), "v"(quads));
    }
    Ints total() const { return sum; }
    static Ints scale(Ints lanes) { return lanes; }
    Ints total(Ints scale) const { return multiply(sum, scale); }
};
inline Ints eighth(Ints start) { return _mm512_srai_epi32(start, 3); }
#else
constexpr int WEIGHT_OFFSET = 0;    // weights are signed
constexpr bool HAS_TILES = false;
constexpr bool PAIR_SUMS = true;    // of unsigned ones sums are of sixteen bits, two a lane
template <bool NIBBLES>
struct QuadWeights {
    Ints bytes;
    __mmask64 negative;
    explicit QuadWeights(Ints from)
        : bytes(NIBBLES ? from : _mm512_abs_epi8(from)),
          negative(NIBBLES ? 0 : _mm512_movepi8_mask(from)) {}
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
                : "+v"(sum), "=&v"(pairs)
                : "m"(four), "v"(weights.bytes));
        } else {
            asm("vpbroadcastd %2, %1\n\tvpsubb %1, %4, %1%{%5%}\n\tvpmaddubsw %1, %3, %1\n\t"
                "vpmaddwd %6, %1, %1\n\tvpaddd %1, %0, %0"
                : "+v"(sum), "=&v"(pairs)
                : "m"(four), "v"(weights.bytes), "v"(_mm512_setzero_si512()),
                  "Yk"(weights.negative), "v"(_mm512_set1_epi16(1)));
        }
    }
    void add(const QuadWeights<true> &weights, Ints quads) {
        Ints pairs;
        asm("vpmaddubsw %2, %3, %1\n\tvpaddw %1, %0, %0"
            : "+v"(sum), "=&v"(pairs)
            : "v"(quads), "v"(weights.bytes));
    }
    Ints total() const {
        return NIBBLES ? _mm512_madd_epi16(sum, _mm512_set1_epi16(1)) : sum;
    }
    // What `total` takes of whole numbers, of sixteen bits each.
    static Ints scale(Ints lanes) {
        Ints above = _mm512_slli_epi32(lanes, 16);
        return NIBBLES ? _mm512_mask_mov_epi16(lanes, 0xaaaaaaaa, above) : lanes;
    }
    Ints total(Ints scale) const {
        return NIBBLES ? _mm512_madd_epi16(sum, scale) : multiply(sum, scale);
    }
};
inline Ints eighth(Ints start) { return _mm512_srai_epi16(start, 3); }
#endif
inline Ints subtract_bytes(Ints bytes, int value) {
    return _mm512_sub_epi8(bytes, _mm512_set1_epi8(static_cast<char>(value)));
}
// Of each byte, below 16, what the table has.
inline Ints look_up(const int8_t *table, Ints bytes) {
    __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i *>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), bytes);
}
#define DRAFTWERK_LOOKS_UP_WORDS
template <bool HAS_UPPERS>
inline void look_up_words(const uint16_t *table, const uint8_t *from, int count,
                          const uint8_t *uppers, uint8_t *to) {
    const __mmask32 all = count >= 32 ? ~0u : (1u << count) - 1;
    auto before = [&](int far) { return _mm256_maskz_loadu_epi8(all & ~0u << far, from - far); };
    auto bytes = [](int value) { return _mm256_set1_epi8(static_cast<char>(value)); };
    // a ^ (b & c), and a | (b & c)
    const __m256i own = _mm256_ternarylogic_epi32(before(0), before(3), bytes(0x88), 0x78);
    auto with = [](__m256i a, __m256i b, __m256i c) {
        return _mm256_ternarylogic_epi32(a, b, c, 0xf8);
    };
    const __m256i last = before(1), second = before(2);
    __m256i at[2] = {own, _mm256_srli_epi16(own, 4)};
    const __m256i above[2][2] = {{_mm256_slli_epi16(last, 1), _mm256_slli_epi16(second, 2)},
                                 {_mm256_srli_epi16(last, 3), _mm256_srli_epi16(second, 2)}};
    for (int half = 0; half < 2; half++) {
        at[half] = _mm256_and_si256(at[half], bytes(0x0f));
        at[half] = with(at[half], above[half][0], bytes(0x10));
        at[half] = with(at[half], above[half][1], bytes(0x20));
        const __m512i words = _mm512_cvtepu8_epi16(at[half]);
        auto part = [&](int i) {
            return _mm512_permutex2var_epi16(load_ints(table + 64 * i), words,
                                             load_ints(table + 64 * i + 32));
        };
        __m512i found = part(0);
        if (HAS_UPPERS) {
            uint32_t upper;
            memcpy(&upper, uppers + half * count / 8, sizeof upper);
            found = _mm512_mask_mov_epi16(found, upper, part(1));
        }
        store(to + half * count * 2, found);
    }
}
// a[0], b[0], a[1], b[1] .. of the lower or the upper eight bytes of each sixteen.
inline Ints interleave_low(Ints a, Ints b) { return _mm512_unpacklo_epi8(a, b); }
inline Ints interleave_high(Ints a, Ints b) { return _mm512_unpackhi_epi8(a, b); }
template <int SHIFT>
inline Ints nibbles(Ints bytes) {
    return _mm512_and_si512(SHIFT ? _mm512_srli_epi16(bytes, SHIFT) : bytes,
                            _mm512_set1_epi8(0x0f));
}

inline void transpose(Ints (&rows)[LANES]) {
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

// Transposes four words of four registers, in each 128 bits by themselves.
inline void transpose_quads(Ints &a, Ints &b, Ints &c, Ints &d) {
    Ints t0 = _mm512_unpacklo_epi32(a, b), t1 = _mm512_unpackhi_epi32(a, b);
    Ints t2 = _mm512_unpacklo_epi32(c, d), t3 = _mm512_unpackhi_epi32(c, d);
    a = _mm512_unpacklo_epi64(t0, t2), b = _mm512_unpackhi_epi64(t0, t2);
    c = _mm512_unpacklo_epi64(t1, t3), d = _mm512_unpackhi_epi64(t1, t3);
}

// even[0], odd[0], even[1], odd[1] ..
inline void store_interleaved(float *to, Floats even, Floats odd) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const __m512i high = _mm512_add_epi32(low, _mm512_set1_epi32(8));
    store(to, _mm512_permutex2var_ps(even, low, odd));
    store(to + LANES, _mm512_permutex2var_ps(even, high, odd));
}

// Not the intrinsic: GCC removes calls of a function that does nothing else.
inline void prefetch(const uint8_t *from) { asm volatile("prefetcht1 %0" : : "m"(*from)); }

// What fits 32 registers: a tile of 48 columns is one panel of three, times eight rows.
constexpr int PANEL = 48;
constexpr int ROWS = 8;
constexpr int WIDE_ROWS = 8;          // up to here a kernel takes all panels of a tile at once
constexpr int ATTENTION_ROWS = 6, ATTENTION_COLUMNS = 64;
constexpr int PEAK_CHAINS = 16;
constexpr int STORED_ROWS = 8, STORED_DOTS = 8, STORED_HALVES = 12;

}  // namespace native
