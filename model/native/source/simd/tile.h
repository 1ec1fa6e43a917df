// A tile of sums, all of it in registers: rows by columns, one register wide each.
#pragma once

#include <utility>

#include "simd/simd.h"

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

template <int ROWS, int COLUMNS>
using Sums = native::Floats[ROWS][COLUMNS];

// sums[r][j] += row(r) * column(j), a number and a register; rounded once.
template <int ROWS, int COLUMNS, class Row, class Column>
[[gnu::always_inline]] inline void add_products(Sums<ROWS, COLUMNS> &sums, Row row,
                                                Column column) {
    if constexpr (ROWS < COLUMNS) {
        native::Floats x[ROWS];
        repeat<ROWS>([&](auto r) { x[r] = native::broadcast(row(r)); });
        repeat<COLUMNS>([&](auto j) {
            const native::Floats w = column(j);
            repeat<ROWS>([&](auto r) { sums[r][j] = native::fma(x[r], w, sums[r][j]); });
        });
    } else {
        native::Floats w[COLUMNS];
        repeat<COLUMNS>([&](auto j) { w[j] = column(j); });
        repeat<ROWS>([&](auto r) {
            const native::Floats x = native::broadcast(row(r));
            repeat<COLUMNS>([&](auto j) { sums[r][j] = native::fma(x, w[j], sums[r][j]); });
        });
    }
}

template <int ROWS, int COLUMNS>
inline void store(const Sums<ROWS, COLUMNS> &sums, float *out, size_t stride) {
    repeat<ROWS>([&](auto r) {
        repeat<COLUMNS>([&](auto j) {
            native::store(out + r * stride + j * native::LANES, sums[r][j]);
        });
    });
}

// A register's words at `from`: floats, or of pairs of bf16 the first ones or the second.
template <bool PAIRS>
inline native::Floats load_words(const uint8_t *from, int half) {
    if (PAIRS) return native::half_of_pairs(from, half);
    return native::load(reinterpret_cast<const float *>(from));
}
