// Embeddings that layers have of their own: made before the first layer, of a token and of what its
// usual embedding comes to, and added behind each layer through a gate that reads the hidden state.
#include "forward/products.h"

// What the embeddings come to, for all layers.
void Forward::multiply_inputs(Turn turn) {
    const float share = 1.0f / std::sqrt(static_cast<float>(shape.hidden));
    products(model.input_projection, space.normal, batch.token_count, turn,
             [&](int row, Span columns, const float *out) {
                 float *to = layer_inputs(row) + columns.first;
                 copy_rounded(out, columns.count, in_bf16, to);
                 (in_bf16 ? scale<true> : scale<false>)(to, share, columns.count);
             });
}

// Norms them, and adds a token's own.
void Forward::norm_inputs(int row) {
    const int size = shape.layer_input, all = shape.inputs_width();
    alignas(64) float own[1 << 16];
    model.input_embedding.get(batch.tokens[row], all, {}, own);
    auto scaled = in_bf16 ? scale<true> : scale<false>;
    scaled(own, shape.layer_input_multiplier, all);
    float *inputs = layer_inputs(row);
    for (int first = 0; first < all; first += size) {
        normalise(inputs + first, model.input_norm.data(), size, false, inputs + first);
    }
    (in_bf16 ? add_to<true> : add_to<false>)(own, all, inputs);
    scaled(inputs, std::sqrt(0.5f), all);
}

void Forward::multiply_input_gate(int layer, Turn turn) {
    const auto activation = static_cast<Activation>(shape.activation);
    products(model.layers[layer].input_gate, space.normal, count_at(layer), turn,
             [&](int row, Span columns, float *out) {
                 const int size = shape.layer_input;
                 const int count = std::min(columns.count, size - columns.first);
                 (in_bf16 ? activate<true> : activate<false>)(activation, out, TILE);
                 const float *own = layer_inputs(token_at(layer, row)) + layer * size;
                 for (int i = 0; i < count; i += LANES) {
                     Floats input = load_first(own + columns.first + i, count - i);
                     Floats gated = load(out + i) * input;
                     store(out + i, in_bf16 ? round_to_bf16(gated) : gated);
                 }
                 if (goes_straight(space.ffn)) {
                     space.ffn.put_columns(row, columns.first, count, out);
                 } else {
                     memcpy(gated_row(row) + columns.first, out, count * sizeof(float));
                 }
             });
}

void Forward::add_input(int layer, int row) {
    const Layer &of = model.layers[layer];
    add_normed(of.after_input, layer, row);
    if (of.scalar.empty()) return;
    float *x = hidden(token_at(layer, row));
    (in_bf16 ? scale<true> : scale<false>)(x, of.scalar[0], shape.hidden);
}
