// How the weights of each kind are read from their lines: quants, scales and minima.
#pragma once

#include "matrix/kinds.h"
#include "matrix/matrix.h"
#include "simd/tile.h"

namespace stored_kernel {

using native::bit_and;
using native::bit_or;
using native::Floats;
using native::Ints;
using native::nibbles;
using native::shift_left;
using native::shift_right;

template <int N>
inline Ints line(const uint8_t *unit) {
    return native::load_ints(unit + N * LINE);
}
// Byte I of each lane.
template <int I>
inline Ints byte(Ints word) {
    Ints lowest = native::broadcast(255);
    if constexpr (I == 0) return bit_and(word, lowest);
    if constexpr (I == 3) return shift_right<24>(word);
    return bit_and(shift_right<8 * I>(word), lowest);
}
template <int I>
inline Ints signed_byte(Ints word) {
    if constexpr (I == 3) return native::shift_right_signed<24>(word);
    else return native::shift_right_signed<24>(shift_left<24 - 8 * I>(word));
}
// Bits FROM .. of each byte that `mask` has, to bits TO ..
template <int FROM, int TO>
inline Ints moved(Ints word, int mask) {
    Ints of = native::broadcast(mask * 0x01010101);
    if constexpr (FROM == TO) return bit_and(word, of);
    else if constexpr (FROM < TO) return bit_and(shift_left<TO - FROM>(word), of);
    else return bit_and(shift_right<FROM - TO>(word), of);
}

// What a kernel knows of a kind beside its layout, by group of 32 inputs and word of four:
//   SPAN      groups that share lines
//   SUMS      integer sums that a group has: of halves of it where it has two scales, or where
//             sixteen bits do not hold more
//   CENTRE    is subtracted from the quants; 0 without, 128 of signed bytes
//   SCALED    whether it has integer scales; MINIMA of a group: 0, 1 or 2
// `at` is where this register's columns of a unit are, `halves` of its halves.
template <Kind KIND>
struct Reading;

template <int SPAN_, int SUMS_, int CENTRE_, bool SCALED_, int MINIMA_ = 0>
struct Shape {
    static constexpr int SPAN = SPAN_, SUMS = SUMS_, CENTRE = CENTRE_, MINIMA = MINIMA_;
    static constexpr bool SCALED = SCALED_, SIGNED = CENTRE_ == 128, FLOATS = false;
    struct Scales {
        explicit Scales(const uint8_t *) {}
    };
};

inline Floats halves_line(const uint8_t *halves) {
    return native::load_halves(reinterpret_cast<const uint16_t *>(halves));
}

// A scale in a line of halves; or with a minimum, in the first line.
struct ScaleBefore {
    template <int>
    static Floats d(const uint8_t *, const uint8_t *halves) { return halves_line(halves); }
    static Floats d_of(const uint8_t *, const uint8_t *halves) { return halves_line(halves); }
};
struct ScaleAndMinimum {
    template <int>
    static Floats d(const uint8_t *at, const uint8_t *) { return native::low_halves(line<0>(at)); }
    static Floats m(const uint8_t *at) { return native::high_halves(line<0>(at)); }
};

template <>
struct Reading<Kind::q4_0> : Shape<1, 1, 8, false>, ScaleBefore {
    template <int, int T>
    static Ints word(const uint8_t *at) { return nibbles<T / 4 * 4>(line<T % 4>(at)); }
};
template <>
struct Reading<Kind::q8_0> : Shape<1, 1, 128, false>, ScaleBefore {
    template <int, int T>
    static Ints word(const uint8_t *at) { return native::with_offset(line<T>(at)); }
};
template <>
struct Reading<Kind::q4_1> : Shape<1, 1, 0, false, 1>, ScaleAndMinimum {
    template <int, int T>
    static Ints word(const uint8_t *at) { return nibbles<T / 4 * 4>(line<1 + T % 4>(at)); }
};
template <>
struct Reading<Kind::q5_0> : Shape<1, 1, 16, false>, ScaleBefore {
    template <int, int T>
    static Ints word(const uint8_t *at) {
        return bit_or(nibbles<T / 4 * 4>(line<1 + T % 4>(at)), moved<T, 4>(line<0>(at), 16));
    }
};
template <>
struct Reading<Kind::q5_1> : Shape<1, native::PAIR_SUMS ? 2 : 1, 0, false, 1>, ScaleAndMinimum {
    template <int, int T>
    static Ints word(const uint8_t *at) {
        return bit_or(nibbles<T / 4 * 4>(line<2 + T % 4>(at)), moved<T, 4>(line<1>(at), 16));
    }
};
template <>
struct Reading<Kind::iq4_nl> : Shape<1, 1, 128, false>, ScaleBefore {
    template <int, int T>
    static Ints word(const uint8_t *at) {
        return native::with_offset(
            native::look_up(IQ4_VALUES, nibbles<T / 4 * 4>(line<T % 4>(at))));
    }
};
// Values with 16 added.
constexpr int8_t MXFP4_ABOVE[16] = {16, 17, 18, 19, 20, 22, 24, 28,
                                    16, 15, 14, 13, 12, 10, 8,  4};
template <>
struct Reading<Kind::mxfp4> : Shape<1, 1, 16, false> {
    template <int G, int T>
    static Ints word(const uint8_t *at) {
        return native::look_up(MXFP4_ABOVE, nibbles<T / 4 * 4>(line<1 + 4 * G + T % 4>(at)));
    }
    template <int G>
    static Floats d(const uint8_t *at, const uint8_t *) {
        Ints exponent = native::add(byte<G>(line<0>(at)), native::broadcast(-1));
        Floats value = native::as_floats(shift_left<23>(exponent));
        return native::select(native::less(value, native::broadcast(TINY)),
                              native::broadcast(0.0f), value);
    }
};

// The scales and minima of Q4_K and Q5_K.
struct SixBits {
    Ints scales[2], minima[2];
    explicit SixBits(const uint8_t *at) {
        Ints a = line<1>(at), b = line<2>(at), c = line<3>(at);
        scales[0] = moved<0, 0>(a, 63), scales[1] = bit_or(nibbles<0>(c), moved<6, 4>(a, 48));
        minima[0] = moved<0, 0>(b, 63), minima[1] = bit_or(nibbles<4>(c), moved<6, 4>(b, 48));
    }
    template <int G, int>
    Ints scale() const { return byte<G % 4>(scales[G / 4]); }
    template <int G, int>
    Ints minimum() const { return byte<G % 4>(minima[G / 4]); }
};
struct HalvesOfLine {
    static Floats d_of(const uint8_t *at, const uint8_t *) {
        return native::low_halves(line<0>(at));
    }
    static Floats dmin(const uint8_t *at) { return native::high_halves(line<0>(at)); }
};
template <>
struct Reading<Kind::q4_k> : Shape<2, 1, 0, true, 1>, HalvesOfLine {
    using Scales = SixBits;
    template <int G, int T>
    static Ints word(const uint8_t *at) {
        return nibbles<G % 2 * 4>(line<4 + G / 2 * 8 + T>(at));
    }
};
template <>
struct Reading<Kind::q5_k> : Shape<2, native::PAIR_SUMS ? 2 : 1, 0, true, 1>, HalvesOfLine {
    using Scales = SixBits;
    template <int G, int T>
    static Ints word(const uint8_t *at) {
        return bit_or(nibbles<G % 2 * 4>(line<12 + G / 2 * 8 + T>(at)),
                      moved<G, 4>(line<4 + T>(at), 16));
    }
};
template <>
struct Reading<Kind::q6_k> : Shape<4, 2, 32, true>, ScaleBefore {
    struct Scales {
        const uint8_t *at;
        explicit Scales(const uint8_t *at) : at(at) {}
        template <int G, int HALF>
        Ints scale() const { return signed_byte<(2 * G + HALF) % 4>(line<G / 2>(at)); }
    };
    template <int G, int T>
    static Ints word(const uint8_t *at) {
        constexpr int Q = G % 4, FIRST = 4 + G / 4 * 24 + 3 * T;
        return bit_or(nibbles<Q / 2 * 4>(line<FIRST + Q % 2>(at)),
                      moved<2 * Q, 4>(line<FIRST + 2>(at), 48));
    }
};
template <>
struct Reading<Kind::q3_k> : Shape<4, 2, 4, true>, ScaleBefore {
    struct Scales {
        Ints words[4];
        explicit Scales(const uint8_t *at) {
            Ints a = line<0>(at), b = line<1>(at), c = line<2>(at);
            words[0] = bit_or(nibbles<0>(a), moved<0, 4>(c, 48));
            words[1] = bit_or(nibbles<0>(b), moved<2, 4>(c, 48));
            words[2] = bit_or(nibbles<4>(a), moved<4, 4>(c, 48));
            words[3] = bit_or(nibbles<4>(b), moved<6, 4>(c, 48));
        }
        template <int G, int HALF>
        Ints scale() const {
            return native::add(byte<(2 * G + HALF) % 4>(words[G / 2]), native::broadcast(-32));
        }
    };
    template <int G, int T>
    static Ints word(const uint8_t *at) {
        return bit_or(moved<G % 4 * 2, 0>(line<11 + G / 4 * 8 + T>(at), 3),
                      moved<G, 2>(line<3 + T>(at), 4));
    }
};
template <>
struct Reading<Kind::q2_k> : Shape<4, 2, 0, true, 2>, HalvesOfLine {
    struct Scales {
        const uint8_t *at;
        explicit Scales(const uint8_t *at) : at(at) {}
        template <int G, int HALF>
        Ints scale() const { return byte<(2 * G + HALF) % 4>(nibbles<0>(line<1 + G / 2>(at))); }
        template <int G, int HALF>
        Ints minimum() const { return byte<(2 * G + HALF) % 4>(nibbles<4>(line<1 + G / 2>(at))); }
    };
    template <int G, int T>
    static Ints word(const uint8_t *at) {
        return moved<G % 4 * 2, 0>(line<5 + G / 4 * 8 + T>(at), 3);
    }
};
template <>
struct Reading<Kind::iq4_xs> : Shape<1, 1, 128, true> {
    struct Scales {
        Ints high, low;
        explicit Scales(const uint8_t *at) : high(line<0>(at)), low(line<1>(at)) {}
        template <int G, int>
        Ints scale() const {
            Ints first = bit_and(shift_right<4 * G>(low), native::broadcast(15));
            Ints second = bit_and(shift_right<12 + 2 * G>(high), native::broadcast(48));
            return native::add(bit_or(first, second), native::broadcast(-32));
        }
    };
    template <int G, int T>
    static Ints word(const uint8_t *at) {
        return native::with_offset(
            native::look_up(IQ4_VALUES, nibbles<T / 4 * 4>(line<2 + 4 * G + T % 4>(at))));
    }
    static Floats d_of(const uint8_t *at, const uint8_t *) {
        return native::low_halves(line<0>(at));
    }
};

// Groups with a scale of their own that is a float, and a zero.
template <Kind KIND>
struct ReadingG4 : Shape<1, 1, 0, false, 1> {
    template <int G, int T>
    static Ints word(const uint8_t *at) { return nibbles<T / 4 * 4>(line<1 + 4 * G + T % 4>(at)); }
    template <int>
    static Floats d(const uint8_t *at, const uint8_t *) {
        return native::as_floats(bit_and(line<0>(at), native::broadcast(~255)));
    }
    static Floats m(const uint8_t *at) {
        const Floats zero = native::to_floats(byte<0>(line<0>(at)));
        return native::multiply(native::subtract(native::broadcast(0.0f), zero), d<0>(at, at));
    }
};
template <>
struct Reading<Kind::g4_32> : ReadingG4<Kind::g4_32> {};
template <>
struct Reading<Kind::g4_128> : ReadingG4<Kind::g4_128> {};
template <>
struct Reading<Kind::g8_128> : Shape<1, 1, 128, false> {
    template <int G, int T>
    static Ints word(const uint8_t *at) { return native::with_offset(line<1 + 8 * G + T>(at)); }
    template <int>
    static Floats d(const uint8_t *at, const uint8_t *) { return native::as_floats(line<0>(at)); }
};

// Weights that are floats themselves: four inputs' of word T of a group.
template <bool SCALED_>
struct FloatShape {
    static constexpr bool FLOATS = true, SCALED = SCALED_;
    static constexpr int SUMS = 1;
};
template <>
struct Reading<Kind::f32> : FloatShape<false> {
    template <int, int T>
    static void four(const uint8_t *at, Floats (&w)[4]) {
        repeat<4>([&](auto i) INLINED { w[i] = native::as_floats(line<4 * T + i>(at)); });
    }
};
template <>
struct Reading<Kind::f16> : FloatShape<false> {
    template <int, int T>
    static void four(const uint8_t *at, Floats (&w)[4]) {
        repeat<2>([&](auto i) INLINED {
            w[2 * i] = native::low_halves(line<2 * T + i>(at));
            w[2 * i + 1] = native::high_halves(line<2 * T + i>(at));
        });
    }
};
template <>
struct Reading<Kind::bf16> : FloatShape<false> {
    template <int, int T>
    static void four(const uint8_t *at, Floats (&w)[4]) {
        repeat<2>([&](auto i) INLINED {
            const Ints both = line<2 * T + i>(at), upper = native::broadcast(~65535);
            w[2 * i] = native::as_floats(shift_left<16>(both));
            w[2 * i + 1] = native::as_floats(bit_and(both, upper));
        });
    }
};
template <>
struct Reading<Kind::f8_128> : FloatShape<true> {
    // Bytes 0 and 2 as halves, which of the same bits are a 256th.
    static Ints halves(Ints word) {
        return bit_or(shift_left<7>(bit_and(word, native::broadcast(0x007f007f))),
                      shift_left<8>(bit_and(word, native::broadcast(0x00800080))));
    }
    template <int G, int T>
    static void four(const uint8_t *at, Floats (&w)[4]) {
        const Ints word = line<1 + 8 * G + T>(at);
        const Ints even = halves(word), odd = halves(shift_right<8>(word));
        w[0] = native::low_halves(even), w[1] = native::low_halves(odd);
        w[2] = native::high_halves(even), w[3] = native::high_halves(odd);
    }
    static Floats d(const uint8_t *at) {
        return native::multiply(native::as_floats(line<0>(at)), native::broadcast(256.0f));
    }
};

}  // namespace stored_kernel
