// One register of four lanes: Advanced SIMD of AArch64, with its dot products where there are.
#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <cstring>

namespace native {

constexpr int LANES = 4;
using Floats = float32x4_t;
using Ints = int32x4_t;
struct Mask {
    uint32x4_t lanes;
};

#define DRAFTWERK_REGISTER "w"

// Floats.
inline Floats broadcast(float value) { return vdupq_n_f32(value); }
inline Floats load(const float *from) { return vld1q_f32(from); }
inline void store(float *to, Floats value) { vst1q_f32(to, value); }
inline Floats add(Floats a, Floats b) { return vaddq_f32(a, b); }
inline Floats subtract(Floats a, Floats b) { return vsubq_f32(a, b); }
inline Floats multiply(Floats a, Floats b) { return vmulq_f32(a, b); }
inline Floats divide(Floats a, Floats b) { return vdivq_f32(a, b); }
inline Floats fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
// As on x86, the second where one is not a number or both are zero.
inline Floats max(Floats a, Floats b) { return vbslq_f32(vcgtq_f32(a, b), a, b); }
inline Floats min(Floats a, Floats b) { return vbslq_f32(vcltq_f32(a, b), a, b); }
inline Floats absolute(Floats a) { return vabsq_f32(a); }
inline Floats nearest(Floats a) { return vrndnq_f32(a); }

inline Mask equal(Floats a, Floats b) { return {vceqq_f32(a, b)}; }
inline Mask less(Floats a, Floats b) { return {vcltq_f32(a, b)}; }
inline Mask at_most(Floats a, Floats b) { return {vcleq_f32(a, b)}; }
inline uint32x4_t each_bit() {
    const uint32_t each[] = {1, 2, 4, 8};
    return vld1q_u32(each);
}
inline uint32_t bits(Mask mask) { return vaddvq_u32(vandq_u32(mask.lanes, each_bit())); }
inline Mask mask_of(uint32_t bits) { return {vtstq_u32(vdupq_n_u32(bits), each_bit())}; }
inline Floats select(Mask mask, Floats yes, Floats no) { return vbslq_f32(mask.lanes, yes, no); }

// Half the lanes at a time, down to one.
inline float reduce_add(Floats a) {
    float32x2_t two = vadd_f32(vget_low_f32(a), vget_high_f32(a));
    return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
}
inline float reduce_max(Floats a) { return vmaxvq_f32(a); }

// Integers.
inline Ints broadcast(int32_t value) { return vdupq_n_s32(value); }
inline Ints load_ints(const void *from) { return vld1q_s32(static_cast<const int32_t *>(from)); }
inline void store(void *to, Ints value) { vst1q_s32(static_cast<int32_t *>(to), value); }
inline Ints add(Ints a, Ints b) { return vaddq_s32(a, b); }
inline Ints multiply(Ints a, Ints b) { return vmulq_s32(a, b); }
inline Ints bit_or(Ints a, Ints b) { return vorrq_s32(a, b); }
inline Ints bit_and(Ints a, Ints b) { return vandq_s32(a, b); }
inline Ints bit_xor(Ints a, Ints b) { return veorq_s32(a, b); }
template <int N>
inline Ints shift_left(Ints a) { return vshlq_n_s32(a, N); }
template <int N>
inline Ints shift_right(Ints a) {
    if constexpr (N == 0) return a;
    else return vreinterpretq_s32_u32(vshrq_n_u32(vreinterpretq_u32_s32(a), N));
}
template <int N>
inline Ints shift_right_signed(Ints a) { return vshrq_n_s32(a, N); }
inline Mask equal(Ints a, Ints b) { return {vceqq_s32(a, b)}; }
inline Ints select(Mask mask, Ints yes, Ints no) { return vbslq_s32(mask.lanes, yes, no); }
// The 64 bits of each unsigned product.
inline void multiply_wide(Ints value, uint32_t factor, Ints &high, Ints &low) {
    uint32x4_t of = vreinterpretq_u32_s32(value);
    uint32x2_t by = vdup_n_u32(factor);
    Ints first = vreinterpretq_s32_u64(vmull_u32(vget_low_u32(of), by));
    Ints second = vreinterpretq_s32_u64(vmull_u32(vget_high_u32(of), by));
    low = vuzp1q_s32(first, second);
    high = vuzp2q_s32(first, second);
}

// From one to the other.
inline Floats as_floats(Ints a) { return vreinterpretq_f32_s32(a); }
inline Ints as_ints(Floats a) { return vreinterpretq_s32_f32(a); }
inline Ints to_ints(Floats a) { return vcvtnq_s32_f32(a); }
inline Floats to_floats(Ints a) { return vcvtq_f32_s32(a); }
inline Floats unsigned_to_floats(Ints a) { return vcvtq_f32_u32(vreinterpretq_u32_s32(a)); }
inline Floats load_halves(const uint16_t *from) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(from)));
}

// The lower or the upper halves of lanes.
inline Floats low_halves(Ints a) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vmovn_u32(vreinterpretq_u32_s32(a))));
}
inline Floats high_halves(Ints a) {
    return vcvt_f32_f16(vreinterpret_f16_u16(vshrn_n_u32(vreinterpretq_u32_s32(a), 16)));
}

inline Ints widened_bytes(uint64_t bytes) {
    return vmovl_s16(vget_low_s16(vmovl_s8(vcreate_s8(bytes))));
}
inline uint64_t saturated_bytes(Ints value) {
    int16x4_t words = vqmovn_s32(value);
    return vget_lane_u64(vreinterpret_u64_s8(vqmovn_s16(vcombine_s16(words, words))), 0);
}
inline void store_upper_halves(uint16_t *to, Ints a) {
    vst1_u16(to, vshrn_n_u32(vreinterpretq_u32_s32(a), 16));
}

// Sums of floats in double, four of them.
struct Doubles {
    float64x2_t low = vdupq_n_f64(0), high = vdupq_n_f64(0);
    void add(Floats a) {
        low = vaddq_f64(low, vcvt_f64_f32(vget_low_f32(a)));
        high = vaddq_f64(high, vcvt_high_f64_f32(a));
    }
    void store(double *to) const {
        vst1q_f64(to, low);
        vst1q_f64(to + 2, high);
    }
};

// Register INDEX of sixteen lanes: the lower eight of one, the upper eight of the other.
template <int INDEX>
inline Floats halves_of(Floats low, Floats high) { return INDEX < 2 ? low : high; }

inline Ints broadcast_quad(const int8_t *quad) {
    int32_t four;
    memcpy(&four, quad, sizeof four);
    return vdupq_n_s32(four);
}

// Integer products of four weights (of eight bits, or nibbles) with four signed bytes.
constexpr int WEIGHT_OFFSET = 0;    // weights are signed
constexpr bool PAIR_SUMS = false;
template <bool NIBBLES>
struct QuadWeights {
    int8x16_t bytes;
    explicit QuadWeights(Ints from) : bytes(vreinterpretq_s8_s32(from)) {}
};
template <bool NIBBLES>
struct QuadSum {
    Ints sum;
    void add(const QuadWeights<NIBBLES> &weights, Ints operand) {
        int8x16_t signed_bytes = vreinterpretq_s8_s32(operand);
#ifdef __ARM_FEATURE_DOTPROD
        sum = vdotq_s32(sum, weights.bytes, signed_bytes);
#else
        int16x8_t low = vmull_s8(vget_low_s8(weights.bytes), vget_low_s8(signed_bytes));
        int16x8_t high = vmull_high_s8(weights.bytes, signed_bytes);
        sum = vaddq_s32(sum, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
    }
    void add(const QuadWeights<NIBBLES> &weights, const int8_t *quad) {
        add(weights, broadcast_quad(quad));
    }
    Ints total() const { return sum; }
    static Ints scale(Ints lanes) { return lanes; }
    Ints total(Ints scale) const { return multiply(sum, scale); }
};
inline Ints eighth(Ints start) { return vshrq_n_s32(start, 3); }
inline Ints subtract_bytes(Ints bytes, int value) {
    int8x16_t each = vdupq_n_s8(static_cast<int8_t>(value));
    return vreinterpretq_s32_s8(vsubq_s8(vreinterpretq_s8_s32(bytes), each));
}
// Of each byte, below 16, what the table has.
inline Ints look_up(const int8_t *table, Ints bytes) {
    return vreinterpretq_s32_s8(vqtbl1q_s8(vld1q_s8(table), vreinterpretq_u8_s32(bytes)));
}
inline Ints interleave_low(Ints a, Ints b) {
    return vreinterpretq_s32_u8(vzip1q_u8(vreinterpretq_u8_s32(a), vreinterpretq_u8_s32(b)));
}
inline Ints interleave_high(Ints a, Ints b) {
    return vreinterpretq_s32_u8(vzip2q_u8(vreinterpretq_u8_s32(a), vreinterpretq_u8_s32(b)));
}
template <int SHIFT>
inline Ints nibbles(Ints bytes) {
    uint8x16_t of = vreinterpretq_u8_s32(bytes);
    return vreinterpretq_s32_u8(SHIFT ? vshrq_n_u8(of, SHIFT ? SHIFT : 1)
                                      : vandq_u8(of, vdupq_n_u8(0x0f)));
}

// Transposes four words of four registers, in each 128 bits by themselves.
inline void transpose_quads(Ints &a, Ints &b, Ints &c, Ints &d) {
    int64x2_t t0 = vreinterpretq_s64_s32(vzip1q_s32(a, b));
    int64x2_t t1 = vreinterpretq_s64_s32(vzip2q_s32(a, b));
    int64x2_t t2 = vreinterpretq_s64_s32(vzip1q_s32(c, d));
    int64x2_t t3 = vreinterpretq_s64_s32(vzip2q_s32(c, d));
    a = vreinterpretq_s32_s64(vzip1q_s64(t0, t2)), b = vreinterpretq_s32_s64(vzip2q_s64(t0, t2));
    c = vreinterpretq_s32_s64(vzip1q_s64(t1, t3)), d = vreinterpretq_s32_s64(vzip2q_s64(t1, t3));
}
inline void transpose(Ints (&rows)[LANES]) {
    transpose_quads(rows[0], rows[1], rows[2], rows[3]);
}

// even[0], odd[0], even[1], odd[1] ..
inline void store_interleaved(float *to, Floats even, Floats odd) {
    store(to, vzip1q_f32(even, odd));
    store(to + LANES, vzip2q_f32(even, odd));
}

// Not the intrinsic: GCC removes calls of a function that does nothing else.
inline void prefetch(const uint8_t *from) {
    asm volatile("prfm pldl2keep, [%0]" : : "r"(from));
}

// What fits 32 registers of four lanes: a tile of 48 columns is three panels.
constexpr int PANEL = 16;
constexpr int ROWS = 6;
constexpr int WIDE_ROWS = 2;          // up to here a kernel takes all panels of a tile at once
constexpr int ATTENTION_ROWS = 6, ATTENTION_COLUMNS = 16;
constexpr int PEAK_CHAINS = 16;
constexpr bool HAS_TILES = false;
constexpr int STORED_ROWS = 4, STORED_DOTS = 8, STORED_HALVES = 16;

}  // namespace native
