// The product of a panel of stored blocks with a few rows, for every type; bits are those of
// QuadSum's integers and of this order of floats, whatever the registers:
//
//     u = sum of quants * bytes of 32 inputs (or of 16), in integers; T = its integer scale * u
//     with integer scales   part = fma(T, a, part)            a: the activations' scale, of 32
//                           low  = fma(minimum, a * sum of the bytes, low)
//                           sum  = fma(part, d, sum), sum = fma(-low, dmin, sum)   once a unit
//     without               sum  = fma(u * d, a, sum), sum = fma(m, a * sum of the bytes, sum)
//     of floats             sum  = fma((first + second) * d, a, sum)   without d where there is none
//                           first = fma(weight, byte, first) of inputs 0 and 1 of each four; second
#pragma once

#include "matrix/readings.h"
#include "matrix/tiled_kernel.h"

namespace stored_kernel {

constexpr int REGISTERS = 16 / native::LANES;       // of a panel
constexpr size_t REGISTER_BYTES = sizeof(Floats);

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

template <bool IS_FLOAT>
struct TotalOf {
    using Type = Ints;
};
template <>
struct TotalOf<true> {
    using Type = Floats;
};
inline Floats as_floats(Ints total) { return native::to_floats(total); }
inline Floats as_floats(Floats total) { return total; }

// The lines of the next panel's unit, fetched a few at each step of a product: memory has a pace.
template <class Of>
struct Ahead {
    static constexpr int LINES = (Of::LINES + REGISTERS - 1) / REGISTERS;   // of a register's share
    const uint8_t *lines;
    Ahead(const uint8_t *next, int h) : lines(next + h * Of::LINES / REGISTERS * LINE) {}
    template <int STEP, int STEPS>
    void fetch() const {
        for (int i = LINES * STEP / STEPS; i < LINES * (STEP + 1) / STEPS; i++) {
            native::prefetch(lines + i * LINE);
        }
    }
};

// A unit's columns of one register.
template <Kind KIND, int COUNT>
struct UnitProduct {
    using Of = Layout<KIND>;
    using Read = Reading<KIND>;
    static constexpr int GROUPS = Of::INPUTS / BLOCK;
    static constexpr int SPAN = Read::SPAN;
    static constexpr int DOTS = Read::SUMS == 2 ? native::STORED_HALVES : native::STORED_DOTS;
    // Groups whose sums are in registers together: those share what is read of a line.
    static constexpr int HALF_SPAN = SPAN > 1 && SPAN / 2 * COUNT <= DOTS ? SPAN / 2 : 1;
    static constexpr int AT_ONCE = SPAN * COUNT <= DOTS ? SPAN : HALF_SPAN;
    using Sum = native::QuadSum<!Read::SIGNED>;
    using Weights = native::QuadWeights<!Read::SIGNED>;
    // Integers times their scales are below 2^24, so floats are exact too, and take fewer steps
    // than products of 32 bits; sums of sixteen bits are multiplied as they are added up.
    static constexpr bool FLOAT_SCALES = Read::SCALED && !native::PAIR_SUMS;
    using Total = typename TotalOf<FLOAT_SCALES>::Type;

    const uint8_t *at, *halves;
    const Ahead<Of> ahead;
    const StoredGroup *const (&x)[COUNT];
    typename Read::Scales scales;
    Floats (&sums)[COUNT];
    Floats part[COUNT], low[COUNT];

    UnitProduct(const uint8_t *at, const uint8_t *halves, const Ahead<Of> &ahead,
                const StoredGroup *const (&x)[COUNT], Floats (&sums)[COUNT])
        : at(at), halves(halves), ahead(ahead), x(x), scales(at), sums(sums) {
        each_of<COUNT>([&](int r) INLINED { part[r] = low[r] = native::broadcast(0.0f); });
    }

    // Half HALF of groups FIRST .. FIRST + AT_ONCE, their integers into `totals`.
    template <int FIRST, int HALF>
    [[gnu::always_inline]] inline void add(Total (&totals)[AT_ONCE][COUNT]) {
        constexpr int WORDS = 8 / Read::SUMS;
        Sum dots[AT_ONCE][COUNT];
        repeat<AT_ONCE>([&](auto g) INLINED {
            each_of<COUNT>([&](int r) INLINED {
                dots[g][r].sum = start<Read::CENTRE, HALF>(x[r][FIRST + g]);
            });
        });
        repeat<WORDS>([&](auto t) INLINED {
            constexpr int T = HALF * WORDS + decltype(t)::value;
            constexpr int SPAN_STEPS = 8, STEP = FIRST / SPAN * SPAN_STEPS + T;
            if constexpr (FIRST % SPAN == 0) {
                ahead.template fetch<STEP, GROUPS / SPAN * SPAN_STEPS>();
            }
            repeat<AT_ONCE>([&](auto g) INLINED {
                const Weights w(Read::template word<FIRST + decltype(g)::value, T>(at));
                each_of<COUNT>([&](int r) INLINED {
                    dots[g][r].add(w, x[r][FIRST + g].bytes + 4 * T);
                });
            });
        });
        repeat<AT_ONCE>([&](auto g) INLINED {
            add_scaled<FIRST + decltype(g)::value, HALF>(dots[g], totals[g]);
        });
    }

    // A group's sums of half HALF, by their integer scale where there is one.
    template <int G, int HALF>
    [[gnu::always_inline]] inline void add_scaled(const Sum (&dots)[COUNT],
                                                  Total (&totals)[COUNT]) {
        if constexpr (FLOAT_SCALES) {
            const Floats scale = native::to_floats(scales.template scale<G, HALF>());
            each_of<COUNT>([&](int r) INLINED {
                const Floats sum = native::to_floats(dots[r].total());
                totals[r] = HALF ? native::fma(sum, scale, totals[r])
                                 : native::multiply(sum, scale);
            });
        } else {
            Ints total[COUNT];
            if constexpr (Read::SCALED) {
                const Ints scale = Sum::scale(scales.template scale<G, HALF>());
                each_of<COUNT>([&](int r) INLINED { total[r] = dots[r].total(scale); });
            } else {
                each_of<COUNT>([&](int r) INLINED { total[r] = dots[r].total(); });
            }
            each_of<COUNT>([&](int r) INLINED {
                totals[r] = HALF ? native::add(totals[r], total[r]) : total[r];
            });
        }
    }

    template <int G>
    [[gnu::always_inline]] inline void add_minima() {
        repeat<Read::MINIMA>([&](auto i) INLINED {
            const Ints whole = scales.template minimum<G, decltype(i)::value>();
            const Floats minimum = native::to_floats(whole);
            each_of<COUNT>([&](int r) INLINED {
                const StoredGroup &of = x[r][G];
                float weighed = Read::MINIMA == 2 ? of.weighed_halves[i] : of.weighed;
                low[r] = native::fma(minimum, native::broadcast(weighed), low[r]);
            });
        });
    }

    template <int G>
    [[gnu::always_inline]] inline void finish(const Total (&totals)[COUNT]) {
        if constexpr (Read::SCALED) {
            each_of<COUNT>([&](int r) INLINED {
                part[r] = native::fma(as_floats(totals[r]),
                                      native::broadcast(x[r][G].scale), part[r]);
            });
            if constexpr (Read::MINIMA > 0) add_minima<G>();
        } else {
            const Floats d = Read::template d<G>(at, halves);
            each_of<COUNT>([&](int r) INLINED {
                sums[r] = native::fma(native::multiply(as_floats(totals[r]), d),
                                      native::broadcast(x[r][G].scale), sums[r]);
            });
            if constexpr (Read::MINIMA > 0) {
                const Floats m = Read::m(at);
                each_of<COUNT>([&](int r) INLINED {
                    sums[r] = native::fma(m, native::broadcast(x[r][G].weighed), sums[r]);
                });
            }
        }
    }

    // The groups of one span: both halves of those that are in registers together; where registers
    // are few, a half of all groups, then the other, in the order of lines.
    template <int FIRST>
    [[gnu::always_inline]] inline void add_span() {
        constexpr int CHUNKS = native::STORED_ROWS > 4 ? 1 : SPAN / AT_ONCE;
        repeat<SPAN / AT_ONCE / CHUNKS>([&](auto part) INLINED {
            constexpr int BEGIN = FIRST + part * CHUNKS * AT_ONCE;
            Total totals[CHUNKS][AT_ONCE][COUNT];
            repeat<Read::SUMS>([&](auto half) INLINED {
                repeat<CHUNKS>([&](auto chunk) INLINED {
                    add<BEGIN + chunk * AT_ONCE, half>(totals[chunk]);
                });
            });
            repeat<CHUNKS * AT_ONCE>([&](auto g) INLINED {
                finish<BEGIN + g>(totals[g / AT_ONCE][g % AT_ONCE]);
            });
        });
    }

    [[gnu::always_inline]] inline void run() {
        repeat<GROUPS / SPAN>([&](auto span) INLINED { add_span<decltype(span)::value * SPAN>(); });
        if constexpr (Read::SCALED) {
            const Floats d = Read::d_of(at, halves);
            each_of<COUNT>([&](int r) INLINED { sums[r] = native::fma(part[r], d, sums[r]); });
            if constexpr (Read::MINIMA > 0) {
                const Floats dmin = Read::dmin(at);
                const Floats none = native::broadcast(0.0f);
                each_of<COUNT>([&](int r) INLINED {
                    sums[r] = native::fma(native::subtract(none, low[r]), dmin, sums[r]);
                });
            }
        }
    }
};

// The same where weights are floats.
template <Kind KIND, int COUNT>
struct FloatProduct {
    using Of = Layout<KIND>;
    using Read = Reading<KIND>;
    static constexpr int GROUPS = Of::INPUTS / BLOCK;
    const uint8_t *at;
    const Ahead<Of> ahead;
    const StoredGroup *const (&x)[COUNT];
    Floats (&sums)[COUNT];

    FloatProduct(const uint8_t *at, const uint8_t *, const Ahead<Of> &ahead,
                 const StoredGroup *const (&x)[COUNT], Floats (&sums)[COUNT])
        : at(at), ahead(ahead), x(x), sums(sums) {}

    template <int G>
    [[gnu::always_inline]] inline void add_group() {
        float inputs[COUNT][BLOCK];
        Floats chains[2][COUNT];
        for (int r = 0; r < COUNT; r++) {
            for (int i = 0; i < BLOCK; i++) inputs[r][i] = static_cast<float>(x[r][G].bytes[i]);
        }
        each_of<COUNT>([&](int r) INLINED {
            chains[0][r] = chains[1][r] = native::broadcast(0.0f);
        });
        repeat<BLOCK / 4>([&](auto t) INLINED {
            ahead.template fetch<G * 8 + decltype(t)::value, GROUPS * 8>();
            Floats w[4];
            Read::template four<G, decltype(t)::value>(at, w);
            repeat<4>([&](auto i) INLINED {
                each_of<COUNT>([&](int r) INLINED {
                    chains[i / 2][r] = native::fma(w[i], native::broadcast(inputs[r][4 * t + i]),
                                                   chains[i / 2][r]);
                });
            });
        });
        each_of<COUNT>([&](int r) INLINED {
            Floats part = native::add(chains[0][r], chains[1][r]);
            if constexpr (Read::SCALED) part = native::multiply(part, Read::d(at));
            sums[r] = native::fma(part, native::broadcast(x[r][G].scale), sums[r]);
        });
    }
    [[gnu::always_inline]] inline void run() {
        repeat<GROUPS>([&](auto g) INLINED {
            add_group<decltype(g)::value>();
        });
    }
};
template <Kind KIND, int COUNT>
using Product = std::conditional_t<Reading<KIND>::FLOATS, FloatProduct<KIND, COUNT>,
                                   UnitProduct<KIND, COUNT>>;

// A panel to fetch meanwhile: one of `turns` passes fetches the units from `turn` on, by so many.
struct NextPanel {
    const uint8_t *data;
    int turn, turns;
};

// The product of a panel with COUNT rows; lines of `next` are fetched as those of `panel` are read.
template <Kind KIND, int COUNT>
void multiply_panel(const uint8_t *rows, size_t stride, int k, const uint8_t *panel,
                    const NextPanel &next, float *out) {
    using Of = Layout<KIND>;
    const int units = (k + Of::INPUTS - 1) / Of::INPUTS;
    Floats sums[REGISTERS][COUNT];
    repeat<REGISTERS>([&](auto h) INLINED {
        each_of<COUNT>([&](int r) INLINED { sums[h][r] = native::broadcast(0.0f); });
    });
    for (int u = 0, others = next.turn; u < units; u++, others--) {
        const size_t begin = unit_at<Of>(u), halves = halves_at<Of>(u);
        // What has nothing to fetch goes over its own lines: they are there.
        const uint8_t *fetched = others ? panel : next.data;
        if (!others) others = next.turns;
        const StoredGroup *x[COUNT];
        each_of<COUNT>([&](int r) INLINED {
            auto *groups = reinterpret_cast<const StoredGroup *>(rows + r * stride);
            x[r] = groups + u * (Of::INPUTS / BLOCK);
        });
        if (Of::PAIRED && u % 2 == 0) native::prefetch(next.data + halves);
        // A loop, or else the code of large units is more than the processor keeps decoded.
        for (int h = 0; h < REGISTERS; h++) {
            Product<KIND, COUNT> product(panel + begin + h * REGISTER_BYTES,
                                         panel + halves + h * REGISTER_BYTES / 2,
                                         Ahead<Of>(fetched + begin, h), x, sums[h]);
            product.run();
        }
    }
    repeat<REGISTERS>([&](auto h) INLINED {
        each_of<COUNT>([&](int r) INLINED {
            native::store(out + r * TILE + h * native::LANES, sums[h][r]);
        });
    });
}

using Kernel = void (*)(const uint8_t *, size_t, int, const uint8_t *, const NextPanel &, float *);
using TiledKernel = void (*)(const TiledRows &, int, const StoredTile &, const uint8_t *, float *);

// By rows; of numbers that are not listed several kernels share the rows.
struct Kernels {
    Kernel of[native::STORED_ROWS + 1];
    TiledKernel tiled;              // null without
};
// Types that are met OFTEN have kernels for more numbers of rows: each takes seconds to compile.
template <Kind KIND, bool OFTEN>
constexpr Kernels kernels_of() {
    Kernels found = {{nullptr, multiply_panel<KIND, 1>, multiply_panel<KIND, 2>, nullptr,
                      multiply_panel<KIND, 4>}, nullptr};
    using Read = Reading<KIND>;
    // Two sums take two tile products, and with two minima beside them vectors are as fast.
    constexpr bool IS_TILED = native::HAS_TILES && !Read::FLOATS && KIND != Kind::q2_k;
    if constexpr (IS_TILED) found.tiled = multiply_tiled<KIND>;
    if constexpr (OFTEN) found.of[3] = multiply_panel<KIND, 3>;
    if constexpr (OFTEN && native::STORED_ROWS > 4) {
        found.of[5] = multiply_panel<KIND, 5>;
        found.of[6] = multiply_panel<KIND, 6>;
        // Two sums a group of eight rows are more than there are registers: twice four are faster.
        if constexpr (Read::SUMS == 1) found.of[8] = multiply_panel<KIND, 8>;
    }
    return found;
}

// Each kind's are compiled in a file of its own.
extern const Kernels Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS,
    MXFP4, F32, F16, BF16, G4_32, G4_128, G8_128, F8_128;

}  // namespace stored_kernel
