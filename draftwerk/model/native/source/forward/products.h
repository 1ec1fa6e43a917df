// What the stages that are matrix products share.
#pragma once

#include "forward/forward.h"
#include "forward/rows.h"

inline void copy_rounded(const float *from, int count, bool in_bf16, float *to) {
    for (int i = 0; i < count; i += LANES) {
        Floats value = load(from + i);
        store_first(to + i, in_bf16 ? round_to_bf16(value) : value, count - i);
    }
}

inline void add_bias(const Matrix &matrix, int tile, float *out) {
    if (!matrix.bias.empty()) add_to<false>(matrix.bias.data() + tile * TILE, TILE, out);
}

// A tile that passes of rows are multiplied with, and the one to fetch meanwhile.
struct PassedTile {
    const Matrix &matrix;
    const Operand &operand;
    int tile;
    Upcoming next;
    int which = 0;                      // of two that take turns
    const uint8_t *words = nullptr;

    void multiply(int row, int count, int pass, int passes, float *out) {
        if (pass == 0) words = decoded(matrix, tile, passes, count, which);
        ::multiply(matrix, operand, row, count, tile, next.share(pass, passes), out, words);
    }
};

template <class Each>
void Forward::in_passes(const Matrix &matrix, int rows, int group, Each each) {
    int begin = group * GROUP_ROWS, end = std::min(rows, begin + GROUP_ROWS);
    int at_once = rows_at_once(matrix.format), passes = (end - begin + at_once - 1) / at_once;
    for (int pass = 0; pass < passes; pass++) {
        int from = begin + (end - begin) * pass / passes;
        each(from, begin + (end - begin) * (pass + 1) / passes - from, pass, passes);
    }
}

template <class Each>
void Forward::products(const Matrix &matrix, const Operand &operand, int rows, Turn turn,
                       Each each, int first_tile, Adapted adapted) {
    int span = matrix.tiles - first_tile, tile = first_tile + turn.item % span;
    Upcoming next;
    if (turn.next >= 0) next = upcoming(matrix, first_tile + turn.next % span);
    alignas(64) float out[ROWS_MAX * TILE];
    PassedTile passed{matrix, operand, tile, next};
    fetch_adapters(adapted, tile);
    in_passes(matrix, rows, turn.item / span, [&](int first, int count, int pass, int passes) {
        passed.multiply(first, count, pass, passes, out);
        add_adapters(adapted, tile, first, count, out);
        for (int r = 0; r < count; r++) {
            add_bias(matrix, tile, out + r * TILE);
            each(first + r, Span{matrix.first_column(tile), matrix.column_count(tile)},
                 out + r * TILE);
        }
    });
}

template <class Put>
void Forward::multiply_gates(const Matrix &matrix, const Operand &operand, int first_row, int rows,
                             int pair, int group, Upcoming next, Upcoming next_up, Put put,
                             Adapted adapted) {
    alignas(64) float gate[ROWS_MAX * TILE], up[ROWS_MAX * TILE];
    const int tile = 2 * pair;
    const auto activation = static_cast<Activation>(shape.activation);
    auto activate = [&](float *g, const float *u) {
        if (activation == Activation::clamped_silu) {
            const Clamps clamps{shape.gate_limit, shape.gate_slope};
            return (in_bf16 ? clamped_and_mul<true> : clamped_and_mul<false>)(g, u, TILE, clamps, g);
        }
        (in_bf16 ? gated<true> : gated<false>)(activation, g, u, TILE, g);
    };
    PassedTile of_gate{matrix, operand, tile, next}, of_up{matrix, operand, tile + 1, next_up, 1};
    fetch_adapters(adapted, tile);
    fetch_adapters(adapted, tile + 1);
    in_passes(matrix, rows, group, [&](int first, int count, int pass, int passes) {
        int row = first_row + first;
        of_gate.multiply(row, count, pass, passes, gate);
        of_up.multiply(row, count, pass, passes, up);
        add_adapters(adapted, tile, row, count, gate);
        add_adapters(adapted, tile + 1, row, count, up);
        for (int r = 0; r < count; r++) {
            float *g = gate + r * TILE, *u = up + r * TILE;
            add_bias(matrix, tile, g);
            add_bias(matrix, tile + 1, u);
            activate(g, u);
            put(first + r, g);
        }
    });
}
