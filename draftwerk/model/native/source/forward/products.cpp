// The stages that are matrix products, each with what follows it fused on.
#include "forward/forward.h"
#include "forward/rows.h"

namespace {

// Calls `each(first row, rows, pass, passes)` for as many rows as a kernel takes, evenly.
template <class Each>
void in_passes(const Matrix &matrix, int rows, int group, Each each) {
    int begin = group * GROUP_ROWS, end = std::min(rows, begin + GROUP_ROWS);
    int at_once = rows_at_once(matrix.format), passes = (end - begin + at_once - 1) / at_once;
    for (int pass = 0; pass < passes; pass++) {
        int from = begin + (end - begin) * pass / passes;
        each(from, begin + (end - begin) * (pass + 1) / passes - from, pass, passes);
    }
}

void copy_rounded(const float *from, int count, bool in_bf16, float *to) {
    for (int i = 0; i < count; i += LANES) {
        Floats value = load(from + i);
        store_first(to + i, in_bf16 ? round_to_bf16(value) : value, count - i);
    }
}

void add_bias(const Matrix &matrix, int tile, float *out) {
    if (!matrix.bias.empty()) add_to<false>(matrix.bias.data() + tile * TILE, TILE, out);
}

}  // namespace

// Left to itself, the hardware fetches too late: of panels of 48 even for one row of activations.
Upcoming Forward::upcoming(const Matrix &matrix, int tile) const {
    if (tile >= matrix.tiles) return {};
    return {matrix.tile(tile), FETCH_LINES, matrix.format == Format::stored};
}

template <class Each>
void Forward::products(const Matrix &matrix, const Operand &operand, int rows, int item,
                       Each each, int first_tile) {
    int span = matrix.tiles - first_tile, tile = first_tile + item % span;
    Upcoming next = upcoming(matrix, tile + model.pool.size());
    alignas(64) float out[ROWS_MAX * TILE];
    in_passes(matrix, rows, item / span, [&](int first, int count, int pass, int passes) {
        multiply(matrix, operand, first, count, tile, next.share(pass, passes), out);
        for (int r = 0; r < count; r++) {
            add_bias(matrix, tile, out + r * TILE);
            each(first + r, Span{matrix.first_column(tile), matrix.column_count(tile)},
                 out + r * TILE);
        }
    });
}

// The first tile that has columns of keys or values.
int Forward::first_qkv_tile(int layer) const {
    const Matrix &matrix = model.layers[layer].qkv;
    int queries = is_unread(layer) ? attention.heads * shape.head_size : 0, tile = 0;
    while (matrix.first_column(tile) + matrix.column_count(tile) <= queries) tile++;
    return tile;
}

void Forward::multiply_qkv(int layer, int item) {
    products(model.layers[layer].qkv, space.normal, batch.token_count, item,
             [&](int row, Span columns, const float *out) {
                 copy_rounded(out, columns.count, in_bf16, qkv(row) + columns.first);
             },
             first_qkv_tile(layer));
}

void Forward::multiply_into_hidden(int layer, const Matrix &matrix, const Operand &operand,
                                   int item, bool is_normed) {
    const Span own = model.shard.hidden;
    products(matrix, operand, count_at(layer), item,
             [&](int row, Span columns, float *out) {
                 if (is_normed) {
                     return copy_rounded(out, columns.count, in_bf16, delta(row) + columns.first);
                 }
                 // Beyond this rank's columns are another's, or the next row.
                 int count = model.meeting ? own.count - columns.first : columns.count;
                 float *to = hidden(token_at(layer, row)) + own.first + columns.first;
                 add_to_hidden(out, std::min(columns.count, count), to);
             });
}

void Forward::multiply_gate_up(int layer, int item) {
    const Matrix &matrix = model.layers[layer].gate_up;
    int pairs = matrix.tiles / 2, pair = item % pairs, column = pair * TILE;
    alignas(64) float gate[ROWS_MAX * TILE], up[ROWS_MAX * TILE];
    const Span own = model.shard.ffn;
    int rows = count_at(layer), tile = 2 * pair, later = tile + 2 * model.pool.size();
    Upcoming next = upcoming(matrix, later), next_up = upcoming(matrix, later + 1);
    auto activate = [&](float *g, const float *u) {
        if (static_cast<Activation>(shape.activation) == Activation::gelu_tanh) {
            return (in_bf16 ? gelu_and_mul<true> : gelu_and_mul<false>)(g, u, TILE, g);
        }
        (in_bf16 ? silu_and_mul<true> : silu_and_mul<false>)(g, u, TILE, g);
    };
    in_passes(matrix, rows, item / pairs, [&](int first, int count, int pass, int passes) {
        multiply(matrix, space.normal, first, count, tile, next.share(pass, passes), gate);
        multiply(matrix, space.normal, first, count, tile + 1, next_up.share(pass, passes), up);
        for (int r = 0; r < count; r++) {
            float *g = gate + r * TILE, *u = up + r * TILE;
            add_bias(matrix, tile, g);
            add_bias(matrix, tile + 1, u);
            activate(g, u);
            put_gated(first + r, column, std::min(TILE, own.count - column), g);
        }
    });
}

void Forward::put_gated(int row, int column, int count, const float *values) {
    if (goes_straight(space.ffn)) {
        space.ffn.put_columns(row, column, count, values);
    } else {
        memcpy(gated_row(row) + model.shard.ffn.first + column, values, count * sizeof(float));
    }
}

// Of an FFN without gates.
void Forward::multiply_up(int layer, int item) {
    const int size = model.shard.ffn.count;
    products(model.layers[layer].gate_up, space.normal, count_at(layer), item,
             [&](int row, Span columns, float *out) {
                 int count = std::min(columns.count, size - columns.first);
                 (in_bf16 ? activate<true> : activate<false>)(
                     static_cast<Activation>(shape.activation), out, TILE);
                 put_gated(row, columns.first, count, out);
             });
}

void Forward::multiply_head(int item) {
    const Span own = model.shard.vocab;
    products(model.head, space.last, batch.output_count, item,
             [&](int row, Span columns, float *out) {
                 size_t begin = static_cast<size_t>(row) * shape.vocab + own.first;
                 float *logits = batch.logits + begin + columns.first;
                 if (shape.logit_scale != 1.0f) scale<false>(out, shape.logit_scale, TILE);
                 if (shape.logit_softcap > 0) cap(out, shape.logit_softcap, TILE);
                 for (int i = 0; i < TILE; i += LANES) {
                     store_first(logits + i, load(out + i), own.count - columns.first - i);
                 }
             });
}
