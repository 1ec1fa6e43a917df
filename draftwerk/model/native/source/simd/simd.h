// Vectors of sixteen lanes, in as many registers as the processor needs for them.
//
//     lanes            0 1 2 3 | 4 5 6 7 | 8 9 10 11 | 12 13 14 15
//     AVX-512          one register
//     AVX2             two         registers
//     NEON             four             registers
//
// Every function is a fixed sequence of operations on each lane, and reductions have a fixed tree,
// so a result's bits depend neither on the neighbours nor on the processor; the build forbids the
// compiler to fuse a*b+c. Nothing outside this folder names an instruction.
#pragma once

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#include "simd/avx512.h"
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#include "simd/avx2.h"
#elif defined(__ARM_NEON) && defined(__aarch64__)
#include "simd/neon.h"
#else
#error "no vectors for this instruction set"
#endif
#include "simd/common.h"

// Words from a table for `count` bytes, at most 32: first of their lower nibbles, then of the
// upper. A nibble's bit 3 enters a register, and what the register holds tells together with the
// nibble which of 64 words it means, as `trellis::widen` has it; `uppers` are one more bit of each.
// What is behind them may be written too.
#ifndef DRAFTWERK_LOOKS_UP_WORDS
namespace native {
template <bool HAS_UPPERS>
inline void look_up_words(const uint16_t *table, const uint8_t *from, int count,
                          const uint8_t *uppers, uint8_t *to) {
    for (int i = 0, before = 0; i < 2 * count; i++) {
        if (i == count) before = 0;
        const int nibble = i < count ? from[i] & 15 : from[i - count] >> 4;
        int at = nibble ^ (before << 1 & 8);
        at |= (before & 3) << 4;
        if (HAS_UPPERS) at |= (uppers[i / 8] >> i % 8 & 1) << 6;
        memcpy(to + i * sizeof *table, table + at, sizeof *table);
        before = before << 1 | nibble >> 3;
    }
}
}  // namespace native
#endif

using bf16 = uint16_t;

constexpr int LANES = 16;
constexpr int PARTS = LANES / native::LANES;

// What is smaller counts as zero wherever it enters a matrix product, as a weight or an operand,
// and wherever it leaves a normalisation. Products are then multiples of 2^-126 and their sums
// never denormal, so it does not matter what an instruction set does with denormal numbers:
// VDPBF16PS flushes them, x86 flushes after rounding, ARM before, or neither does.
constexpr float TINY = 0x1p-40f;

constexpr int round_up(int value, int unit) { return (value + unit - 1) / unit * unit; }

struct Floats {
    native::Floats part[PARTS];
};
struct Ints {
    native::Ints part[PARTS];
};
struct Mask {
    native::Mask part[PARTS];
};

template <class Vector, class Each>
inline Vector by_part(Each each) {
    Vector result;
    for (int i = 0; i < PARTS; i++) result.part[i] = each(i);
    return result;
}

// Floats.
inline Floats broadcast(float value) {
    return by_part<Floats>([&](int) { return native::broadcast(value); });
}
inline Floats load(const float *from) {
    return by_part<Floats>([&](int i) { return native::load(from + i * native::LANES); });
}
inline void store(float *to, const Floats &value) {
    for (int i = 0; i < PARTS; i++) native::store(to + i * native::LANES, value.part[i]);
}
// The first `count` lanes, zeros behind them.
inline Floats load_first(const float *from, int count) {
    return by_part<Floats>([&](int i) {
        return native::load_first(from + i * native::LANES, count - i * native::LANES);
    });
}
inline void store_first(float *to, const Floats &value, int count) {
    for (int i = 0; i < PARTS; i++) {
        native::store_first(to + i * native::LANES, value.part[i], count - i * native::LANES);
    }
}
#define EACH_LANE(name, operation)                                                               \
    inline Floats name(const Floats &a, const Floats &b) {                                       \
        return by_part<Floats>(                                                                  \
            [&](int i) { return native::operation(a.part[i], b.part[i]); });                     \
    }
EACH_LANE(operator+, add)
EACH_LANE(operator-, subtract)
EACH_LANE(operator*, multiply)
EACH_LANE(operator/, divide)
EACH_LANE(max, max)
EACH_LANE(min, min)
#undef EACH_LANE
// a * b + c, rounded once.
inline Floats fma(const Floats &a, const Floats &b, const Floats &c) {
    return by_part<Floats>([&](int i) { return native::fma(a.part[i], b.part[i], c.part[i]); });
}
inline Floats absolute(const Floats &a) {
    return by_part<Floats>([&](int i) { return native::absolute(a.part[i]); });
}

#define COMPARE(name)                                                                            \
    inline Mask name(const Floats &a, const Floats &b) {                                         \
        return by_part<Mask>([&](int i) { return native::name(a.part[i], b.part[i]); });         \
    }
COMPARE(equal)
COMPARE(less)
COMPARE(at_most)
#undef COMPARE
inline uint32_t bits(const Mask &mask) {
    uint32_t all = 0;
    for (int i = 0; i < PARTS; i++) all |= native::bits(mask.part[i]) << i * native::LANES;
    return all;
}
inline Mask mask_of(uint32_t bits) {
    return by_part<Mask>([&](int i) { return native::mask_of(bits >> i * native::LANES); });
}
inline uint32_t first_lanes(int count) {
    return count >= LANES ? 0xffff : (1u << (count < 0 ? 0 : count)) - 1;
}
inline Floats select(const Mask &mask, const Floats &yes, const Floats &no) {
    return by_part<Floats>(
        [&](int i) { return native::select(mask.part[i], yes.part[i], no.part[i]); });
}
// Lanes of each eight, those of these numbers.
template <int... FROM>
inline Floats permute_eights(const Floats &a) {
#ifdef DRAFTWERK_PERMUTES_EIGHTS
    return by_part<Floats>([&](int i) { return native::permute_eights<FROM...>(a.part[i]); });
#else
    constexpr int from[] = {FROM...};
    float lanes[LANES], found[LANES];
    store(lanes, a);
    for (int i = 0; i < LANES; i++) found[i] = lanes[(i & 8) + from[i & 7]];
    return load(found);
#endif
}
// The first `count` lanes, and others behind them.
inline Floats keep_first(const Floats &value, int count, const Floats &others) {
    return count >= LANES ? value : select(mask_of(first_lanes(count)), value, others);
}
inline Floats without_tiny(const Floats &value) {
    return select(less(absolute(value), broadcast(TINY)), broadcast(0.0f), value);
}

// Lanes i and i + 8, then i and i + 4, and so on.
inline Floats halved(Floats a) {
    for (int half = PARTS / 2; half > 0; half /= 2) {
        for (int i = 0; i < half; i++) a.part[i] = native::add(a.part[i], a.part[i + half]);
    }
    return a;
}
inline float reduce_add(const Floats &a) { return native::reduce_add(halved(a).part[0]); }
inline float reduce_max(const Floats &a) {
    native::Floats most = a.part[0];
    for (int i = 1; i < PARTS; i++) most = native::max(most, a.part[i]);
    return native::reduce_max(most);
}

// Integers.
inline Ints broadcast(int32_t value) {
    return by_part<Ints>([&](int) { return native::broadcast(value); });
}
inline Ints load_ints(const int32_t *from) {
    return by_part<Ints>([&](int i) { return native::load_ints(from + i * native::LANES); });
}
inline Ints operator+(const Ints &a, const Ints &b) {
    return by_part<Ints>([&](int i) { return native::add(a.part[i], b.part[i]); });
}
inline Ints operator&(const Ints &a, const Ints &b) {
    return by_part<Ints>([&](int i) { return native::bit_and(a.part[i], b.part[i]); });
}
inline Ints operator^(const Ints &a, const Ints &b) {
    return by_part<Ints>([&](int i) { return native::bit_xor(a.part[i], b.part[i]); });
}
template <int N>
inline Ints shift_right(const Ints &a) {
    return by_part<Ints>([&](int i) { return native::shift_right<N>(a.part[i]); });
}
inline Mask equal(const Ints &a, const Ints &b) {
    return by_part<Mask>([&](int i) { return native::equal(a.part[i], b.part[i]); });
}
inline Ints select(const Mask &mask, const Ints &yes, const Ints &no) {
    return by_part<Ints>(
        [&](int i) { return native::select(mask.part[i], yes.part[i], no.part[i]); });
}
inline void multiply_wide(const Ints &value, uint32_t factor, Ints &high, Ints &low) {
    for (int i = 0; i < PARTS; i++) {
        native::multiply_wide(value.part[i], factor, high.part[i], low.part[i]);
    }
}
inline void transpose_quads(Ints &a, Ints &b, Ints &c, Ints &d) {
    for (int i = 0; i < PARTS; i++) {
        native::transpose_quads(a.part[i], b.part[i], c.part[i], d.part[i]);
    }
}

// From one to the other. Floats become the nearest integers, ties to even.
inline Ints to_ints(const Floats &a) {
    return by_part<Ints>([&](int i) { return native::to_ints(a.part[i]); });
}
inline Floats to_floats(const Ints &a) {
    return by_part<Floats>([&](int i) { return native::to_floats(a.part[i]); });
}
inline Floats unsigned_to_floats(const Ints &a) {
    return by_part<Floats>([&](int i) { return native::unsigned_to_floats(a.part[i]); });
}
inline Ints load_bytes(const uint8_t *from, int count) {
    return by_part<Ints>([&](int i) {
        return native::load_bytes(from + i * native::LANES, count - i * native::LANES);
    });
}
inline void store_bytes(uint8_t *to, const Ints &value, int count) {
    for (int i = 0; i < PARTS; i++) {
        native::store_bytes(to + i * native::LANES, value.part[i], count - i * native::LANES);
    }
}

// bf16.
inline float widen(bf16 value) {
    uint32_t bits = static_cast<uint32_t>(value) << 16;
    float result;
    memcpy(&result, &bits, sizeof result);
    return result;
}
inline bf16 to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return static_cast<bf16>((bits + (bits >> 16 & 1) + 0x7fff) >> 16);
}
inline Floats round_to_bf16(const Floats &a) {
    return by_part<Floats>([&](int i) { return native::round_to_bf16(a.part[i]); });
}
// What a model held in bf16 does to each intermediate value; the identity in the other formats.
template <bool BF16>
inline Floats rounded(const Floats &value) {
    return BF16 ? round_to_bf16(value) : value;
}
inline Floats load_bf16(const bf16 *from, int count) {
    float lanes[LANES] = {};
    for (int i = 0; i < LANES && i < count; i++) lanes[i] = widen(from[i]);
    return load(lanes);
}
inline void store_bf16(bf16 *to, const Floats &value, int count) {
    for (int i = 0; i < PARTS; i++) {
        native::store_bf16_first(to + i * native::LANES, value.part[i], count - i * native::LANES);
    }
}

// Operands of products of bf16 pairs: bf16, or what it is as a float.
using PairElement = native::PairElement;
inline void store_pairs(bf16 *to, const Floats &value, int count) { store_bf16(to, value, count); }
inline void store_pairs(float *to, const Floats &value, int count) {
    store_first(to, round_to_bf16(value), count);
}

// The sum of the floats of many vectors, in double.
class DoubleSum {
  public:
    void add(const Floats &value) {
        for (int i = 0; i < PARTS; i++) sums_[i].add(value.part[i]);
    }
    double total() const {
        double lanes[LANES];
        for (int i = 0; i < PARTS; i++) sums_[i].store(lanes + i * native::LANES);
        for (int half = LANES / 2; half > 0; half /= 2) {
            for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
        }
        return lanes[0];
    }

  private:
    native::Doubles sums_[PARTS];
};

inline int32_t load_int(const void *from) {
    int32_t value;
    memcpy(&value, from, sizeof value);
    return value;
}

// e**x to about one unit in the last place; 0 far below, infinity never (x is at most 88).
namespace native {
inline Floats exponential(Floats x) {
    x = max(min(x, broadcast(88.0f)), broadcast(-88.0f));
    Floats n = nearest(multiply(x, broadcast(1.44269504f)));
    Floats r = fma(n, broadcast(-0.693359375f), x);
    r = fma(n, broadcast(2.12194440e-4f), r);
    Floats p = broadcast(1.9875691500e-4f);
    p = fma(p, r, broadcast(1.3981999507e-3f));
    p = fma(p, r, broadcast(8.3334519073e-3f));
    p = fma(p, r, broadcast(4.1665795894e-2f));
    p = fma(p, r, broadcast(1.6666665459e-1f));
    p = fma(p, r, broadcast(5.0000001201e-1f));
    p = fma(p, multiply(r, r), add(r, broadcast(1.0f)));
    return times_power_of_two(p, n);
}
}  // namespace native
inline Floats exponential(const Floats &x) {
    return by_part<Floats>([&](int i) { return native::exponential(x.part[i]); });
}
inline Floats tanh(const Floats &x) {
    const Floats one = broadcast(1.0f);
    return one - broadcast(2.0f) / (exponential(x + x) + one);
}
inline float exponential(float x) {
    float lanes[native::LANES];
    native::store(lanes, native::exponential(native::broadcast(x)));
    return lanes[0];
}
