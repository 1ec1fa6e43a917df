// A tile of sums, all of it in registers: rows by columns, one register wide each.
#pragma once

#include <utility>

#include "simd/simd.h"

// Lambdas are inlined before arrays are put into registers, or else those stay in memory.
#define INLINED __attribute__((always_inline))

// Calls `each` with 0 .. COUNT as constants. Arrays of registers are indexed so: in a loop that is
// unrolled only later, GCC keeps them in memory and writes every sum back in every round.
template <class Each, int... INDEX>
[[gnu::always_inline]] inline void each_index(Each each, std::integer_sequence<int, INDEX...>) {
    (each(std::integral_constant<int, INDEX>()), ...);
}
template <int COUNT, class Each>
[[gnu::always_inline]] inline void repeat(Each each) {
    each_index(each, std::make_integer_sequence<int, COUNT>());
}

// The same with plain numbers, where no type depends on them: it compiles in less time.
template <int COUNT, class Each>
[[gnu::always_inline]] inline void each_of(Each each) {
#pragma GCC unroll 16
    for (int i = 0; i < COUNT; i++) each(i);
}

template <int ROWS, int COLUMNS>
using Sums = native::Floats[ROWS][COLUMNS];

// sums[r][j] += row(r) * column(j), both registers; rounded once.
template <int ROWS, int COLUMNS, class Row, class Column>
[[gnu::always_inline]] inline void add_products(Sums<ROWS, COLUMNS> &sums, Row row,
                                                Column column) {
    if constexpr (ROWS < COLUMNS) {
        decltype(row(0)) x[ROWS];
        each_of<ROWS>([&](int r) INLINED { x[r] = row(r); });
        each_of<COLUMNS>([&](int j) INLINED {
            const auto w = column(j);
            each_of<ROWS>([&](int r) INLINED { sums[r][j] = native::fma(x[r], w, sums[r][j]); });
        });
    } else {
        decltype(column(0)) w[COLUMNS];
        each_of<COLUMNS>([&](int j) INLINED { w[j] = column(j); });
        each_of<ROWS>([&](int r) INLINED {
            const auto x = row(r);
            each_of<COLUMNS>([&](int j) INLINED { sums[r][j] = native::fma(x, w[j], sums[r][j]); });
        });
    }
}

template <int ROWS, int COLUMNS>
inline void store(const Sums<ROWS, COLUMNS> &sums, float *out, size_t stride) {
    each_of<ROWS>([&](int r) INLINED {
        each_of<COLUMNS>([&](int j) INLINED {
            native::store(out + r * stride + j * native::LANES, sums[r][j]);
        });
    });
}

// What a row and a column bring to a step of a product, a word each: a float, or a pair of bf16.
template <bool PAIRS>
struct Words {
    static constexpr int HALVES = 1;
    static native::Floats spread(const uint8_t *row, int step, int) {
        return native::broadcast(reinterpret_cast<const float *>(row)[step]);
    }
    static native::Floats load(const uint8_t *from, int) {
        return native::load(reinterpret_cast<const float *>(from));
    }
};
template <>
struct Words<true> {
    static constexpr int HALVES = native::HALVES;
    static auto spread(const uint8_t *row, int step, int half) {
        return native::broadcast_pair(reinterpret_cast<const PairElement *>(row) + 2 * step, half);
    }
    static auto load(const uint8_t *from, int half) { return native::load_pairs(from, half); }
};

// One step of a product: rows are `stride` bytes apart, and `words(j)` is where the words of a
// register's columns are. Of pairs, the upper halves are multiplied first.
template <bool PAIRS, int ROWS, int COLUMNS, class Address>
[[gnu::always_inline]] inline void add_step(Sums<ROWS, COLUMNS> &sums, const uint8_t *rows,
                                            size_t stride, int step, Address words) {
    constexpr int HALVES = Words<PAIRS>::HALVES;
    repeat<HALVES>([&](auto later) {
        constexpr int HALF = HALVES - 1 - later;
        add_products<ROWS, COLUMNS>(
            sums, [&](int r) { return Words<PAIRS>::spread(rows + r * stride, step, HALF); },
            [&](int j) { return Words<PAIRS>::load(words(j), HALF); });
    });
}
