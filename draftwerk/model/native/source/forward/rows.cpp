// The stages that take one token after another.
#include "simd/elementary.h"
#include "forward/forward.h"
#include "forward/rows.h"

namespace {

// Up to here a stage of rows is done by the thread that ended the stage before: a barrier costs
// more.
constexpr int SERIAL_ROWS = 4;

RotaryRounding rotary_rounding(const Shape &shape) {
    return static_cast<RotaryRounding>(shape.rotary_rounding);
}

}  // namespace

int Forward::rows_or_serial(int stage, int count) {
    if (only_products) return 0;
    if (count > SERIAL_ROWS) return (count + SERIAL_ROWS - 1) / SERIAL_ROWS;
    run_span(stage, 0, count);
    return 0;
}

int Forward::rows_at(int stage) const {
    int layer = (stage - 1) / STEPS, step = (stage - 1) % STEPS;
    if (stage == 0) return batch.token_count;
    if (layer == layers) return batch.output_count;
    if (step == EXPERT_GATED) return place_count(layer);
    return step > ROPE ? count_at(layer) : count_before(layer);
}

void Forward::run_rows(int stage, int item) {
    int first = item * SERIAL_ROWS;
    run_span(stage, first, std::min(rows_at(stage) - first, SERIAL_ROWS));
}

void Forward::run_span(int stage, int first, int count) {
    for (int row = first; row < first + count; row++) run_row(stage, row);
    multiply_a_after(stage, first, count);
}

void Forward::run_row(int stage, int row) {
    if (stage == 0) return embed(row);
    int index = (stage - 1) / STEPS;
    if (index == layers) {
        size_t begin = static_cast<size_t>(row) * shape.hidden;
        float *state = batch.states ? batch.states + begin : nullptr;
        return norm(model.norm, batch.outputs[row], space.last, row, state);
    }
    const Layer &layer = model.layers[index];
    switch ((stage - 1) % STEPS) {
        case INPUTS_NORMED: return norm_inputs(row);
        case ATTENTION_NORM:
            add_given(index, token_before(index, row));
            return norm(layer.attention_norm, token_before(index, row), space.normal, row);
        case ROPE:
            if (layer.scans()) return mix_token(index, row);
            if (layer.convolves()) return store_inputs(index, row);
            return rope(layer, index, token_before(index, row));
        case ATTEND: return convolve(index, row);
        case ATTENDED:
            if (layer.scans()) return gate_scanned(index, row);
            return quantise(::Part::output, row, attended(row), space.attention);
        case MIXED: return add_normed(layer.after_attention, index, row);
        case FFN_NORM: return norm_for_ffn(layer, token_at(index, row), row);
        case ROUTE: return route(index, row);
        case EXPERT_NORM: return norm_for_experts(layer, token_at(index, row), row);
        case EXPERT_GATED: return space.expert_ffn.put_row(row, expert_gated(row));
        case COMBINE: return combine(index, row);
        case FED:
            add_normed(layer.after_ffn, index, row);
            return add_scaled(layer, index, row);
        case INPUT_GATED: return space.ffn.put_row(row, gated_row(row));
        case INPUT_ADDED: return add_input(index, row);
        default: return quantise(::Part::down, row, gated_row(row), space.ffn);
    }
}

// Puts a row into an operand, unless it is there already.
void Forward::quantise(::Part part, int row, const float *values, Operand &to) {
    if (goes_straight(to)) return;
    to.put_row(row, values);
    put_unquantised(part, row, values);
}

// Keeps the outputs' hidden states before a layer, if they are wanted.
void Forward::keep(int layer) {
    const size_t size = shape.hidden, all = batch.kept_count * size;
    for (int64_t at = 0; at < batch.kept_count; at++) {
        if (batch.kept_layers[at] != layer) continue;
        for (int i = 0; i < batch.output_count; i++) {
            memcpy(batch.kept + i * all + at * size, hidden(batch.outputs[i]), size * sizeof(float));
        }
    }
}

// Adds what the batch has for a token behind the layer before.
void Forward::add_given(int layer, int row) {
    if (layer < 1 || layer > batch.added_layers || batch.added_rows[row] < 0) return;
    const size_t at = static_cast<size_t>(layer - 1) * batch.added_count + batch.added_rows[row];
    (in_bf16 ? add_to<true> : add_to<false>)(batch.added + at * shape.hidden, shape.hidden,
                                             hidden(row));
}

// Leaves the hidden states to the next stage, and ends the job.
int Forward::hand_on() {
    for (int row = 0; row < batch.token_count; row++) {
        float *to = batch.hidden_out + static_cast<size_t>(row) * shape.hidden;
        memcpy(to, hidden(row), shape.hidden * sizeof(float));
    }
    return -1;
}

// How queries are turned back for the tiles that are kept: they see these right before their window.
void Forward::turn(int row) {
    const int behind = shape.kept_tiles * SPAN + model.views.front().of.window - 1;
    const int back = std::max(0, batch.positions[row] - behind);
    for (int i = 0; i < shape.rotary_pairs[0]; i++) {
        double s, c;
        elementary::sine_and_cosine(static_cast<float>(back) * model.inverse_frequencies[i], s, c);
        turn_cosine(row)[i] = static_cast<float>(c);
        turn_sine(row)[i] = -static_cast<float>(s);
    }
}

void Forward::embed(int row) {
    float *x = hidden(row);
    if (batch.hidden_in) {
        const float *from = batch.hidden_in + static_cast<size_t>(row) * shape.hidden;
        memcpy(x, from, shape.hidden * sizeof(float));
    } else {
        model.embed(batch.tokens[row], x);
        if (shape.embedding_multiplier != 1.0f) {
            (in_bf16 ? scale<true> : scale<false>)(x, shape.embedding_multiplier, shape.hidden);
        }
    }
    if (shape.layer_input) space.normal.put_row(row, x);
    const int each = batch.position_count > 1;
    const int32_t *position = batch.positions + static_cast<size_t>(row) * batch.position_count;
    for (int i = 0; i < angles(); i++) {
        float angle = static_cast<float>(position[each * i]) * model.inverse_frequencies[i];
        float magnitude = shape.rotary_magnitudes[i >= shape.rotary_pairs[0]];
        double s, c;
        elementary::sine_and_cosine(angle, s, c);
        cosine(row)[i] = static_cast<float>(c) * magnitude;
        sine(row)[i] = static_cast<float>(s) * magnitude;
    }
    if (shape.kept_tiles) turn(row);
    if (!in_bf16 || rotary_rounding(shape) == RotaryRounding::result) return;
    for (int i = 0; i < angles(); i += LANES) {
        store(cosine(row) + i, round_to_bf16(load(cosine(row) + i)));
        store(sine(row) + i, round_to_bf16(load(sine(row) + i)));
    }
}

void Forward::normalise(const float *in, const float *weight, int size, bool biased,
                        float *out) const {
    const float epsilon = shape.norm_epsilon;
    switch (static_cast<NormKind>(shape.norm)) {
        case NormKind::rms:
            return (in_bf16 ? rms_norm<true> : rms_norm<false>)(in, weight, size, epsilon, out);
        case NormKind::rms_rounded_once:
            return (in_bf16 ? rms_norm<true, true> : rms_norm<false>)(in, weight, size, epsilon,
                                                                      out);
        case NormKind::layer:
            return (in_bf16 ? layer_norm<true> : layer_norm<false>)(
                in, weight, biased ? weight + size : nullptr, size, epsilon, out);
    }
}

// Without weights the values go on as they are.
void Forward::norm(const std::vector<float> &weight, int row, Operand &to, int to_row,
                   float *kept) {
    alignas(64) float unkept[1 << 14];
    float *values = kept ? kept : unkept;
    const int size = shape.hidden;
    if (weight.empty()) {
        for (int i = 0; i < size; i += LANES) {
            store_first(values + i, without_tiny(load_first(hidden(row) + i, size - i)), size - i);
        }
    } else {
        normalise(hidden(row), weight.data(), size, weight.size() > static_cast<size_t>(size),
                  values);
    }
    to.put_row(to_row, values);
    if (&to == &space.normal) put_unquantised(::Part::qkv, to_row, values);
}

// A router reads floats, of the hidden state by a norm of its own where it has one.
void Forward::norm_for_ffn(const Layer &layer, int token, int row) {
    if (!layer.shape.has_experts) return norm(layer.ffn_norm, token, space.normal, row);
    alignas(64) float values[1 << 14];
    norm(layer.ffn_norm, token, space.normal, row, values);
    if (!layer.router_norm.empty()) {
        normalise(hidden(token), layer.router_norm.data(), shape.hidden, false, values);
    }
    space.routed.put_row(row, values);
}

// Of experts that have a norm of their own; what the FFN beside them has come to is normed too.
void Forward::norm_for_experts(const Layer &layer, int token, int row) {
    normalise(delta(row), layer.after_dense.data(), shape.hidden, false, delta(row));
    norm(layer.expert_norm, token, space.normal, row);
}

// Adds what a layer has come to, normed.
void Forward::add_normed(const std::vector<float> &weight, int index, int row) {
    const int size = shape.hidden;
    normalise(delta(row), weight.data(), size, weight.size() > static_cast<size_t>(size),
              delta(row));
    add_to_hidden(delta(row), size, hidden(token_at(index, row)));
}

// Behind a layer: its own input is added to what is put here, or else its scalar is a factor of it.
void Forward::add_scaled(const Layer &layer, int index, int row) {
    float *x = hidden(token_at(index, row));
    if (shape.layer_input) return space.normal.put_row(row, x);
    if (layer.scalar.empty()) return;
    (in_bf16 ? scale<true> : scale<false>)(x, layer.scalar[0], shape.hidden);
}

void Forward::add_to_hidden(float *values, int count, float *to) const {
    if (shape.residual_multiplier != 1.0f) {
        if (in_bf16) scale<true>(values, 1.0f, count);
        (in_bf16 ? scale<true> : scale<false>)(values, shape.residual_multiplier, count);
    }
    (in_bf16 ? add_to<true> : add_to<false>)(values, count, to);
}

// Norms the query heads, from `first` on, and the key heads.
void Forward::norm_heads(const Layer &layer, const AttentionShape &attention, float *heads,
                         int first) const {
    const int size = attention.head_size, keys = attention.heads;
    const int values = keys + (layer.stores() ? attention.kv_heads : 0);
    if (layer.query_norm.empty()) return;
    if (static_cast<HeadNorm>(shape.head_norm) == HeadNorm::projection) {
        float *key = heads + keys * size;
        if (first == 0) normalise(heads, layer.query_norm.data(), keys * size, false, heads);
        return normalise(key, layer.key_norm.data(), attention.kv_heads * size, false, key);
    }
    const bool differ = static_cast<HeadNorm>(shape.head_norm) == HeadNorm::each;
    for (int head = first; head < values; head++) {
        const float *weight = head < keys ? layer.query_norm.data() : layer.key_norm.data();
        if (differ) {
            const Span &own = head < keys ? model.shard.heads : model.shard.kv_heads;
            weight += (own.first + (head < keys ? head : head - keys)) * size;
        }
        normalise(heads + head * size, weight, size, false, heads + head * size);
    }
}

// Makes up for a long text's many keys: scores grow with the logarithm of the position.
void Forward::heat_queries(float *heads, int count, int row) const {
    float turns = std::floor(static_cast<float>(batch.positions[row]) / shape.temperature_length);
    auto factor = static_cast<float>(1.0 + shape.temperature_beta * elementary::log(1.0 + turns));
    if (in_bf16) factor = widen(to_bf16(factor));
    (in_bf16 ? scale<true> : scale<false>)(heads, factor, count);
}

void Forward::rope(const Layer &layer, int index, int row) {
    float *heads = qkv(row);
    const AttentionShape &attention = model.attention(index);
    const int size = attention.head_size, keys = attention.heads;
    const int stored = layer.stores() ? attention.kv_heads : 0, values = keys + stored;
    const int first = is_unread(index) ? keys : 0, which = layer.shape.rotary;
    const int from = which > 0 ? shape.rotary_pairs[0] : 0;
    const int pairs = which < 0 ? 0 : shape.rotary_pairs[which];
    const bool in_steps = in_bf16 && rotary_rounding(shape) == RotaryRounding::all;
    if (layer.shape.keys_are_values) {
        memcpy(heads + values * size, heads + keys * size, stored * size * sizeof(float));
    }
    for (int head = values; head < values + stored && !layer.value_norm.empty(); head++) {
        float *at = heads + head * size;
        normalise(at, layer.value_norm.data(), size, false, at);
    }
    if (!shape.norms_after_rotation) norm_heads(layer, attention, heads, first);
    for (int head = first; which >= 0 && head < values; head++) {
        float *at = heads + head * size;
        (in_steps ? rotate<true> : rotate<false>)(at, cosine(row) + from, sine(row) + from, pairs);
        if (in_bf16 && !in_steps) scale<true>(at, 1.0f, 2 * pairs);
    }
    if (shape.norms_after_rotation) norm_heads(layer, attention, heads, first);
    if (shape.temperature_beta > 0 && first == 0) heat_queries(heads, keys * size, row);
    for (int head = 0; head < stored; head++) {
        const int32_t slot = page_slot(index, row);
        attention.kv->store_head(layer.form(attention, head), heads + (keys + head) * size,
                                 heads + (values + head) * size, size,
                                 at_head(keys_of(index), index, slot, head),
                                 at_head(values_of(index), index, slot, head));
    }
}
