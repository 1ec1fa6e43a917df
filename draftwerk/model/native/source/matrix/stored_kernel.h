// The product of a panel of stored blocks with a few rows, for every type; bits are those of
// QuadSum's integers and of this order of floats, whatever the registers:
//
//     u = sum of quants * bytes of 32 inputs (or of 16), in integers; T = its integer scale * u
//     with integer scales   part = fma(T, a, part)            a: the activations' scale, of 32
//                           low  = fma(minimum, a * sum of the bytes, low)
//                           sum  = fma(part, d, sum), sum = fma(-low, dmin, sum)   once a unit
//     without               sum  = fma(u * d, a, sum), sum = fma(m, a * sum of the bytes, sum)
#pragma once

#include "matrix/kinds.h"
#include "matrix/matrix.h"
#include "simd/tile.h"

// Lambdas are inlined before arrays are put into registers, or else those stay in memory.
#define INLINED __attribute__((always_inline))

namespace stored_kernel {

using native::bit_and;
using native::bit_or;
using native::Floats;
using native::Ints;
using native::nibbles;
using native::shift_left;
using native::shift_right;

constexpr int REGISTERS = 16 / native::LANES;       // of a panel
constexpr size_t REGISTER_BYTES = sizeof(Floats);

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
    static constexpr bool SCALED = SCALED_, SIGNED = CENTRE_ == 128;
    struct Scales {
        explicit Scales(const uint8_t *) {}
    };
};

inline Floats halves_line(const uint8_t *halves) {
    return native::load_halves(reinterpret_cast<const uint16_t *>(halves));
}

template <>
struct Reading<Kind::q4_0> : Shape<1, 1, 8, false> {
    template <int, int T>
    static Ints word(const uint8_t *at) { return nibbles<T / 4 * 4>(line<T % 4>(at)); }
    template <int>
    static Floats d(const uint8_t *, const uint8_t *halves) { return halves_line(halves); }
};
template <>
struct Reading<Kind::q8_0> : Shape<1, 1, 128, false> {
    template <int, int T>
    static Ints word(const uint8_t *at) { return native::with_offset(line<T>(at)); }
    template <int>
    static Floats d(const uint8_t *, const uint8_t *halves) { return halves_line(halves); }
};
template <>
struct Reading<Kind::q4_1> : Shape<1, 1, 0, false, 1> {
    template <int, int T>
    static Ints word(const uint8_t *at) { return nibbles<T / 4 * 4>(line<1 + T % 4>(at)); }
    template <int>
    static Floats d(const uint8_t *at, const uint8_t *) { return native::low_halves(line<0>(at)); }
    static Floats m(const uint8_t *at) { return native::high_halves(line<0>(at)); }
};
template <>
struct Reading<Kind::q5_0> : Shape<1, 1, 16, false> {
    template <int, int T>
    static Ints word(const uint8_t *at) {
        return bit_or(nibbles<T / 4 * 4>(line<1 + T % 4>(at)), moved<T, 4>(line<0>(at), 16));
    }
    template <int>
    static Floats d(const uint8_t *, const uint8_t *halves) { return halves_line(halves); }
};
template <>
struct Reading<Kind::q5_1> : Shape<1, native::PAIR_SUMS ? 2 : 1, 0, false, 1> {
    template <int, int T>
    static Ints word(const uint8_t *at) {
        return bit_or(nibbles<T / 4 * 4>(line<2 + T % 4>(at)), moved<T, 4>(line<1>(at), 16));
    }
    template <int>
    static Floats d(const uint8_t *at, const uint8_t *) { return native::low_halves(line<0>(at)); }
    static Floats m(const uint8_t *at) { return native::high_halves(line<0>(at)); }
};
template <>
struct Reading<Kind::iq4_nl> : Shape<1, 1, 128, false> {
    template <int, int T>
    static Ints word(const uint8_t *at) {
        return native::with_offset(
            native::look_up(IQ4_VALUES, nibbles<T / 4 * 4>(line<T % 4>(at))));
    }
    template <int>
    static Floats d(const uint8_t *, const uint8_t *halves) { return halves_line(halves); }
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
struct Reading<Kind::q6_k> : Shape<4, 2, 32, true> {
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
    static Floats d_of(const uint8_t *, const uint8_t *halves) { return halves_line(halves); }
};
template <>
struct Reading<Kind::q3_k> : Shape<4, 2, 4, true> {
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
    static Floats d_of(const uint8_t *, const uint8_t *halves) { return halves_line(halves); }
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

// Where the products of half HALF (of a group with one sum: 0) begin.
template <int CENTRE, int HALF>
inline Ints start(const StoredGroup &x) {
    if constexpr (CENTRE == 8) return native::broadcast(x.start8);
    else if constexpr (CENTRE == 16) {
        return native::PAIR_SUMS ? native::broadcast(x.start_wide)
                                 : shift_left<1>(native::broadcast(x.start8));
    } else if constexpr (CENTRE == 32) return native::broadcast(x.start32[HALF]);
    else if constexpr (CENTRE == 4) return native::eighth(native::broadcast(x.start32[HALF]));
    else if constexpr (CENTRE == 128) {
        return native::broadcast(native::WEIGHT_OFFSET ? x.start_wide : 0);
    } else return native::broadcast(0);
}

// A unit's columns of one register.
template <Kind KIND, int COUNT>
struct UnitProduct {
    using Of = Layout<KIND>;
    using Read = Reading<KIND>;
    static constexpr int GROUPS = Of::INPUTS / BLOCK;
    static constexpr int SPAN = Read::SPAN;
    static constexpr int DOTS = Read::SUMS == 2 ? 2 * native::STORED_DOTS : native::STORED_DOTS;
    // Groups whose sums are in registers together: those share what is read of a line.
    static constexpr int HALF_SPAN = SPAN > 1 && SPAN / 2 * COUNT <= DOTS ? SPAN / 2 : 1;
    static constexpr int AT_ONCE = SPAN * COUNT <= DOTS ? SPAN : HALF_SPAN;
    using Sum = native::QuadSum<!Read::SIGNED>;
    using Weights = native::QuadWeights<!Read::SIGNED>;

    const uint8_t *at, *halves;
    const StoredGroup *const (&x)[COUNT];
    typename Read::Scales scales;
    Floats (&sums)[COUNT];
    Floats part[COUNT], low[COUNT];

    UnitProduct(const uint8_t *at, const uint8_t *halves, const StoredGroup *const (&x)[COUNT],
                Floats (&sums)[COUNT])
        : at(at), halves(halves), x(x), scales(at), sums(sums) {
        repeat<COUNT>([&](auto r) INLINED { part[r] = low[r] = native::broadcast(0.0f); });
    }

    // Half HALF of groups FIRST .. FIRST + AT_ONCE, their integers into `totals`.
    template <int FIRST, int HALF>
    [[gnu::always_inline]] inline void add(Ints (&totals)[AT_ONCE][COUNT]) {
        constexpr int WORDS = 8 / Read::SUMS;
        Sum dots[AT_ONCE][COUNT];
        repeat<AT_ONCE>([&](auto g) INLINED {
            repeat<COUNT>([&](auto r) INLINED {
                dots[g][r].sum = start<Read::CENTRE, HALF>(x[r][FIRST + g]);
            });
        });
        repeat<WORDS>([&](auto t) INLINED {
            constexpr int T = HALF * WORDS + decltype(t)::value;
            repeat<AT_ONCE>([&](auto g) INLINED {
                const Weights w(Read::template word<FIRST + decltype(g)::value, T>(at));
                repeat<COUNT>([&](auto r) INLINED {
                    dots[g][r].add(w, x[r][FIRST + g].bytes + 4 * T);
                });
            });
        });
        repeat<AT_ONCE>([&](auto g) INLINED {
            constexpr int G = FIRST + decltype(g)::value;
            Ints total[COUNT];
            if constexpr (Read::SCALED) {
                const Ints scale = Sum::scale(scales.template scale<G, HALF>());
                repeat<COUNT>([&](auto r) INLINED { total[r] = dots[g][r].total(scale); });
            } else {
                repeat<COUNT>([&](auto r) INLINED { total[r] = dots[g][r].total(); });
            }
            repeat<COUNT>([&](auto r) INLINED {
                totals[g][r] = HALF ? native::add(totals[g][r], total[r]) : total[r];
            });
        });
    }

    template <int G>
    [[gnu::always_inline]] inline void finish(const Ints (&totals)[COUNT]) {
        if constexpr (Read::SCALED) {
            repeat<COUNT>([&](auto r) INLINED {
                part[r] = native::fma(native::to_floats(totals[r]),
                                      native::broadcast(x[r][G].scale), part[r]);
            });
            repeat<Read::MINIMA>([&](auto i) INLINED {
                const Ints whole = scales.template minimum<G, decltype(i)::value>();
                const Floats minimum = native::to_floats(whole);
                repeat<COUNT>([&](auto r) INLINED {
                    const StoredGroup &of = x[r][G];
                    float weighed = Read::MINIMA == 2 ? of.weighed_halves[i] : of.weighed;
                    low[r] = native::fma(minimum, native::broadcast(weighed), low[r]);
                });
            });
        } else {
            const Floats d = Read::template d<G>(at, halves);
            repeat<COUNT>([&](auto r) INLINED {
                sums[r] = native::fma(native::multiply(native::to_floats(totals[r]), d),
                                      native::broadcast(x[r][G].scale), sums[r]);
            });
            if constexpr (Read::MINIMA > 0) {
                const Floats m = Read::m(at);
                repeat<COUNT>([&](auto r) INLINED {
                    sums[r] = native::fma(m, native::broadcast(x[r][G].weighed), sums[r]);
                });
            }
        }
    }

    // The groups of one span. Halves come in the order of lines, all groups of each.
    template <int FIRST>
    [[gnu::always_inline]] inline void add_span() {
        constexpr int CHUNKS = SPAN / AT_ONCE;
        Ints totals[CHUNKS][AT_ONCE][COUNT];
        repeat<Read::SUMS>([&](auto half) INLINED {
            repeat<CHUNKS>([&](auto chunk) INLINED {
                add<FIRST + decltype(chunk)::value * AT_ONCE, decltype(half)::value>(totals[chunk]);
            });
        });
        repeat<SPAN>([&](auto g) INLINED {
            finish<FIRST + decltype(g)::value>(totals[g / AT_ONCE][g % AT_ONCE]);
        });
    }

    [[gnu::always_inline]] inline void run() {
        repeat<GROUPS / SPAN>([&](auto span) INLINED { add_span<decltype(span)::value * SPAN>(); });
        if constexpr (Read::SCALED) {
            const Floats d = Read::d_of(at, halves);
            repeat<COUNT>([&](auto r) INLINED { sums[r] = native::fma(part[r], d, sums[r]); });
            if constexpr (Read::MINIMA > 0) {
                const Floats dmin = Read::dmin(at);
                const Floats none = native::broadcast(0.0f);
                repeat<COUNT>([&](auto r) INLINED {
                    sums[r] = native::fma(native::subtract(none, low[r]), dmin, sums[r]);
                });
            }
        }
    }
};

// The product of a panel with COUNT rows; lines of `next` are fetched as those of `panel` are read.
template <Kind KIND, int COUNT, bool FETCH>
void multiply_panel(const uint8_t *rows, size_t stride, int k, const uint8_t *panel,
                    const uint8_t *next, float *out) {
    using Of = Layout<KIND>;
    const int units = (k + Of::INPUTS - 1) / Of::INPUTS;
    Floats sums[REGISTERS][COUNT];
    repeat<REGISTERS>([&](auto h) INLINED {
        repeat<COUNT>([&](auto r) INLINED { sums[h][r] = native::broadcast(0.0f); });
    });
    for (int u = 0; u < units; u++) {
        const size_t begin = unit_at<Of>(u), halves = halves_at<Of>(u);
        const StoredGroup *x[COUNT];
        repeat<COUNT>([&](auto r) INLINED {
            auto *groups = reinterpret_cast<const StoredGroup *>(rows + r * stride);
            x[r] = groups + u * (Of::INPUTS / BLOCK);
        });
        if constexpr (FETCH) {
            if (Of::PAIRED && u % 2 == 0) native::prefetch(next + halves);
            for (int i = 0; i < Of::LINES; i++) native::prefetch(next + begin + i * LINE);
        }
        repeat<REGISTERS>([&](auto h) INLINED {
            UnitProduct<KIND, COUNT> product(panel + begin + h * REGISTER_BYTES,
                                             panel + halves + h * REGISTER_BYTES / 2, x, sums[h]);
            product.run();
        });
    }
    repeat<REGISTERS>([&](auto h) INLINED {
        repeat<COUNT>([&](auto r) INLINED {
            native::store(out + r * TILE + h * native::LANES, sums[h][r]);
        });
    });
}

using Kernel = void (*)(const uint8_t *, size_t, int, const uint8_t *, const uint8_t *, float *);

// By rows; of numbers that are not listed several kernels share the rows.
struct Kernels {
    Kernel of[native::STORED_ROWS + 1];
    Kernel one_that_fetches;
};
// Types that are met OFTEN have kernels for more numbers of rows: each takes seconds to compile.
template <Kind KIND, bool OFTEN>
constexpr Kernels kernels_of() {
    Kernels found = {{nullptr, multiply_panel<KIND, 1, false>, multiply_panel<KIND, 2, true>,
                      nullptr, multiply_panel<KIND, 4, true>},
                     multiply_panel<KIND, 1, true>};
    if constexpr (OFTEN) found.of[3] = multiply_panel<KIND, 3, true>;
    if constexpr (OFTEN && native::STORED_ROWS > 4) {
        found.of[6] = multiply_panel<KIND, 6, true>;
        found.of[8] = multiply_panel<KIND, 8, true>;
    }
    return found;
}

// Each kind's are compiled in a file of its own.
extern const Kernels Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS,
    MXFP4;

}  // namespace stored_kernel
