// The stages that are matrix products, each with what follows it fused on.
#include "forward/products.h"
#include "forward/rows.h"

// Left to itself, the hardware fetches too late: of panels of 48 even for one row of activations.
Upcoming Forward::upcoming(const Matrix &matrix, int tile) {
    if (!matrix.is_coded) return {matrix.tile(tile), FETCH_LINES, matrix.format == Format::stored};
    const size_t stride = 64 * FETCH_LINES * matrix.panel_bytes / matrix.plain_panel_bytes;
    return {matrix.tile(tile), FETCH_LINES - 1, false, stride};
}

// The first tile that has columns of keys or values, or inputs of a convolution.
int Forward::first_qkv_tile(int layer) const {
    const Matrix &matrix = model.layers[layer].qkv;
    const AttentionShape &attention = model.attention(layer);
    const bool has_queries = is_unread(layer) && model.layers[layer].attends();
    int queries = has_queries ? attention.heads * attention.head_size : 0, tile = 0;
    while (matrix.first_column(tile) + matrix.column_count(tile) <= queries) tile++;
    return tile;
}

void Forward::multiply_qkv(int layer, Turn turn) {
    products(model.layers[layer].qkv, space.normal, count_before(layer), turn,
             [&](int row, Span columns, const float *out) {
                 float *to = qkv(token_before(layer, row)) + columns.first;
                 copy_rounded(out, columns.count, in_bf16, to);
             },
             first_qkv_tile(layer), {layer, ::Part::qkv});
}

void Forward::multiply_into_hidden(Adapted of, int layer, const Matrix &matrix,
                                   const Operand &operand, Turn turn, bool is_normed) {
    const Span own = model.shard.hidden;
    const bool is_shared = shape.shared_is_gated && &operand == &space.ffn &&
                                model.layers[layer].shape.has_experts;
    products(matrix, operand, count_at(layer), turn,
             [&](int row, Span columns, float *out) {
                 if (is_normed) {
                     return copy_rounded(out, columns.count, in_bf16, delta(row) + columns.first);
                 }
                 if (is_shared) weigh_shared(row, out);
                 // Beyond this rank's columns are another's, or the next row.
                 int count = model.meeting ? own.count - columns.first : columns.count;
                 float *to = hidden(token_at(layer, row)) + own.first + columns.first;
                 add_to_hidden(out, std::min(columns.count, count), to);
             },
             0, of);
}

void Forward::multiply_gate_up(int layer, Turn turn) {
    const Matrix &matrix = model.layers[layer].gate_up;
    int pairs = matrix.tiles / 2, pair = turn.item % pairs, column = pair * TILE;
    int size = model.dense_ffn(model.layers[layer]);
    Upcoming next, next_up;
    if (turn.next >= 0) {
        next = upcoming(matrix, turn.next % pairs * 2);
        next_up = upcoming(matrix, turn.next % pairs * 2 + 1);
    }
    multiply_gates(matrix, space.normal, 0, count_at(layer), pair, turn.item / pairs, next, next_up,
                   [&](int row, const float *values) {
                       put_gated(row, column, std::min(TILE, size - column), values);
                   },
                   {layer, ::Part::gate_up});
}

void Forward::put_gated(int row, int column, int count, const float *values) {
    if (goes_straight(space.ffn)) {
        space.ffn.put_columns(row, column, count, values);
    } else {
        memcpy(gated_row(row) + model.shard.ffn.first + column, values, count * sizeof(float));
    }
}

// Of an FFN without gates.
void Forward::multiply_up(int layer, Turn turn) {
    const int size = model.dense_ffn(model.layers[layer]);
    products(model.layers[layer].gate_up, space.normal, count_at(layer), turn,
             [&](int row, Span columns, float *out) {
                 int count = std::min(columns.count, size - columns.first);
                 (in_bf16 ? activate<true> : activate<false>)(
                     static_cast<Activation>(shape.activation), out, TILE);
                 put_gated(row, columns.first, count, out);
             },
             0, {layer, ::Part::gate_up});
}

void Forward::weigh_shared(int row, float *out) {
    if (in_bf16) scale<true>(out, 1.0f, TILE);
    (in_bf16 ? scale<true> : scale<false>)(out, shared_weight(row), TILE);
}

void Forward::multiply_head(Turn turn) {
    const Span own = model.shard.vocab;
    products(model.head, space.last, batch.logit_count, turn,
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
