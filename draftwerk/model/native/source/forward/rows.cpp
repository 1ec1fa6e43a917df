// The stages that take one token after another.
#include "simd/elementary.h"
#include "forward/forward.h"
#include "forward/rows.h"

namespace {

// Up to here a stage of rows is done by the thread that ended the stage before: a barrier costs
// more.
constexpr int SERIAL_ROWS = 4;

}  // namespace

int Forward::rows_or_serial(int stage, int count) {
    if (only_products) return 0;
    if (count > SERIAL_ROWS) return (count + SERIAL_ROWS - 1) / SERIAL_ROWS;
    for (int row = 0; row < count; row++) run_row(stage, row);
    return 0;
}

void Forward::run_rows(int stage, int item) {
    int layer = (stage - 1) / STEPS;
    int count = batch.token_count;
    if (stage > 0 && layer == layers) count = batch.output_count;
    if (stage > 0 && layer < layers && (stage - 1) % STEPS > ROPE) count = count_at(layer);
    int end = std::min(count, (item + 1) * SERIAL_ROWS);
    for (int row = item * SERIAL_ROWS; row < end; row++) run_row(stage, row);
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
        case ATTENTION_NORM: return norm(layer.attention_norm, row, space.normal, row);
        case ROPE: return rope(layer, index, row);
        case ATTENDED: return space.attention.put_row(row, attended(row));
        case FFN_NORM: return norm(layer.ffn_norm, token_at(index, row), space.normal, row);
        default: return space.ffn.put_row(row, gated_row(row));
    }
}

// Leaves the hidden states to the next stage, and ends the job.
int Forward::hand_on() {
    for (int row = 0; row < batch.token_count; row++) {
        float *to = batch.hidden_out + static_cast<size_t>(row) * shape.hidden;
        memcpy(to, hidden(row), shape.hidden * sizeof(float));
    }
    return -1;
}

void Forward::embed(int row) {
    float *x = hidden(row);
    if (batch.hidden_in) {
        const float *from = batch.hidden_in + static_cast<size_t>(row) * shape.hidden;
        memcpy(x, from, shape.hidden * sizeof(float));
    } else {
        model.embed(batch.tokens[row], x);
    }
    const int half = shape.head_size / 2;
    for (int i = 0; i < half; i++) {
        float angle = static_cast<float>(batch.positions[row]) * model.inverse_frequencies[i];
        double s, c;
        elementary::sine_and_cosine(angle, s, c);
        cosine(row)[i] = static_cast<float>(c) * shape.rope_magnitude;
        sine(row)[i] = static_cast<float>(s) * shape.rope_magnitude;
    }
    if (!in_bf16) return;
    for (int i = 0; i < half; i += LANES) {
        store(cosine(row) + i, round_to_bf16(load(cosine(row) + i)));
        store(sine(row) + i, round_to_bf16(load(sine(row) + i)));
    }
}

void Forward::norm(const std::vector<float> &weight, int row, Operand &to, int to_row,
                   float *kept) {
    alignas(64) float unkept[1 << 14];
    float *values = kept ? kept : unkept;
    (in_bf16 ? rms_norm<true> : rms_norm<false>)(hidden(row), weight.data(), shape.hidden,
                                                  shape.norm_epsilon, values);
    to.put_row(to_row, values);
}

void Forward::rope(const Layer &layer, int index, int row) {
    float *heads = qkv(row);
    const int size = shape.head_size, keys = attention.heads, values = keys + attention.kv_heads;
    for (int head = is_unread(index) ? keys : 0; head < values; head++) {
        float *at = heads + head * size;
        const auto &weight = head < keys ? layer.query_norm : layer.key_norm;
        if (!weight.empty()) {
            (in_bf16 ? rms_norm<true> : rms_norm<false>)(at, weight.data(), size,
                                                          shape.norm_epsilon, at);
        }
        (in_bf16 ? rotate<true> : rotate<false>)(at, cosine(row), sine(row), size / 2);
    }
    for (int head = 0; head < attention.kv_heads; head++) {
        size_t slot_head = first_head(index, batch.slots[row]) + head;
        store_kv(heads + (keys + head) * size, size, attention.kv,
                 at_head(batch.keys, slot_head));
        store_kv(heads + (values + head) * size, size, attention.kv,
                 at_head(batch.values, slot_head));
    }
}
