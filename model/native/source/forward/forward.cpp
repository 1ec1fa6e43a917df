#include "forward/forward.h"

Forward::Forward(Model &model, const Batch &batch, bool only_products)
    : model(model), shape(model.shape), batch(batch), space(model.workspace),
      attention(model.attention()), in_bf16(shape.in_bf16), only_products(only_products) {
    if (only_products) return;
    cut_into_blocks();
    cut_into_splits();
}

// Has the other ranks' columns of what a stage reads; returns false once a rank is lost.
bool Forward::gather_before(int stage) {
    int layer = (stage - 1) / STEPS, step = (stage - 1) % STEPS;
    const Shard &own = model.shard;
    Meeting &others = *model.meeting;
    int rows = batch.token_count, size = shape.head_size;
    if (stage == 0 || (layer == shape.layers && step == 1)) return true;
    if (layer == shape.layers && step == 2) {
        return others.gather({batch.logits, static_cast<size_t>(shape.vocab), shape.vocab},
                             batch.output_count, own.vocab);
    }
    switch (step) {
        case ATTENDED: {
            Span columns{own.heads.first * size, own.heads.count * size};
            int all = model.attended_width();
            return others.gather({attended(0), width(all), all}, rows, columns);
        }
        case GATED: return others.gather({gated_row(0), width(shape.ffn), shape.ffn}, rows, own.ffn);
        case ATTENTION_NORM:
            if (layer == 0) return true;
            [[fallthrough]];
        case FFN_NORM:
            return others.gather({hidden(0), width(shape.hidden), shape.hidden}, rows, own.hidden);
        default: return true;
    }
}

int Forward::open(int stage) {
    if (model.meeting && !only_products && !gather_before(stage)) return -1;
    int items = items_of(stage);
    return only_products && items > 0 && !is_product(stage) ? 0 : items;
}

bool Forward::is_product(int stage) const {
    int layer = (stage - 1) / STEPS, step = (stage - 1) % STEPS;
    if (stage == 0 || layer == shape.layers) return stage > 0 && step == 1;
    return step == QKV || step == OUTPUT || step == GATE_UP || step == DOWN;
}

int Forward::items_of(int stage) {
    if (stage == 0) return rows_or_serial(stage, batch.token_count);
    int layer = (stage - 1) / STEPS;
    if (layer == shape.layers) {
        int after = (stage - 1) % STEPS;
        if (batch.hidden_out) return hand_on();
        if (after == 0) return rows_or_serial(stage, batch.output_count);
        return after == 1 && batch.output_count ? tiles(model.head, batch.output_count) : -1;
    }
    const Layer &of = model.layers[layer];
    switch ((stage - 1) % STEPS) {
        case QKV: return tiles(of.qkv, batch.token_count);
        case ATTEND: return open_attention();
        case ATTENDED:
            return goes_straight(space.attention) ? 0 : rows_or_serial(stage, batch.token_count);
        case OUTPUT: return tiles(of.output, batch.token_count);
        case GATE_UP: return tiles(of.gate_up, batch.token_count) / 2;
        case GATED:
            return goes_straight(space.ffn) ? 0 : rows_or_serial(stage, batch.token_count);
        case DOWN: return tiles(of.down, batch.token_count);
        default: return rows_or_serial(stage, batch.token_count);
    }
}

void Forward::run(int stage, int item, int thread) {
    int layer = (stage - 1) / STEPS, step = (stage - 1) % STEPS;
    bool last = stage > 0 && layer == shape.layers;
    if (last && step == 1) return multiply_head(item);
    if (stage == 0 || last) return run_rows(stage, item);
    switch (step) {
        case QKV: return multiply_qkv(model.layers[layer], item);
        case ATTEND: return attend(layer, item, *model.scratch[thread]);
        case OUTPUT:
            return multiply_into_hidden(model.layers[layer].output, space.attention, item);
        case GATE_UP: return multiply_gate_up(model.layers[layer], item);
        case DOWN: return multiply_into_hidden(model.layers[layer].down, space.ffn, item);
        default: return run_rows(stage, item);
    }
}

void Model::forward(const Batch &batch) {
    reserve(batch.token_count, batch.output_count);
    Forward job(*this, batch, false);
    pool.run(job);
}

void Model::linears(int rows, int outputs) {
    reserve(rows, outputs);
    std::vector<float> logits(static_cast<size_t>(outputs) * shape.vocab);
    Batch batch{};
    batch.token_count = rows, batch.output_count = outputs, batch.logits = logits.data();
    Forward job(*this, batch, true);
    pool.run(job);
}
