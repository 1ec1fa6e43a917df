#include "forward/forward.h"

Forward::Forward(Model &model, const Batch &batch, bool only_products)
    : model(model), shape(model.shape), batch(batch), space(model.workspace),
      in_bf16(shape.in_bf16), only_products(only_products), layers(batch.layers),
      all(model.views.size()), narrow(model.views.size()) {
    for (int layer = 0; layer < layers; layer++) {
        if (model.layers[layer].stores()) last_stored = layer;
    }
    if (only_products) return;
    spread_adapters();
    spell_out_ancestors();
    if (shape.taps) find_taps();
    if (model.recurrent_layers) find_parents();
    cut(all, false);
    // A later stage goes on with every token, a parallel FFN with the norms of every token.
    if (batch.hidden_out || batch.output_count == batch.token_count || shape.is_parallel) return;
    numbers.assign(batch.token_count, -1);
    for (int i = 0; i < batch.output_count; i++) numbers[batch.outputs[i]] = i;
    cut(narrow, true);
}

// Has the other ranks' columns of what a stage reads; returns false once a rank is lost.
bool Forward::gather_before(int stage) {
    int layer = (stage - 1) / STEPS, step = (stage - 1) % STEPS;
    const Shard &own = model.shard;
    Meeting &others = *model.meeting;
    int count = count_at(layer), size = shape.head_size;
    if (stage == 0 || (layer == layers && step == 1)) return true;
    if (layer == layers && step == 0) return gather_hidden(layer - 1);
    if (layer == layers && step == 2) {
        return others.gather({batch.logits, static_cast<size_t>(shape.vocab), shape.vocab},
                             batch.logit_count, own.vocab);
    }
    switch (step) {
        case ATTENDED: {
            Span columns{own.heads.first * size, own.heads.count * size};
            int all = model.attended_width(model.layers[layer].shape);
            return others.gather({attended(0), width(model.mixed_width()), all}, count, columns);
        }
        case GATED:
            return others.gather({gated_row(0), width(model.ffn_width()), shape.ffn}, count, own.ffn);
        case ATTENTION_NORM: return layer == 0 || gather_hidden(layer - 1);
        case FFN_NORM: return gather_hidden(layer);
        default: return true;
    }
}

// Of the rows that a layer has added to, which stand where their tokens do.
bool Forward::gather_hidden(int layer) {
    const int32_t *rows = is_narrow(layer) ? batch.outputs : nullptr;
    Columns all{hidden(0), width(shape.hidden), shape.hidden, rows};
    return model.meeting->gather(all, count_at(layer), model.shard.hidden);
}

int Forward::open(int stage) {
    if (model.meeting && !only_products && !gather_before(stage)) return -1;
    int items = items_of(stage);
    return only_products && items > 0 && !is_product(stage) ? 0 : items;
}

bool Forward::is_product(int stage) const {
    int layer = (stage - 1) / STEPS, step = (stage - 1) % STEPS;
    if (stage == 0 || layer == layers) return stage > 0 && step == 1;
    switch (step) {
        case QKV: case OUTPUT: case GATE_UP: case DOWN: return true;
        case INPUTS: case INPUT_GATE: case INPUT_OUTPUT: return true;
        case ROUTER: case EXPERT_UP: case EXPERT_DOWN: return true;
        default: return false;
    }
}

int Forward::items_of(int stage) {
    if (stage == 0) return rows_or_serial(stage, batch.token_count);
    int layer = (stage - 1) / STEPS;
    if (layer == layers) {
        int after = (stage - 1) % STEPS;
        if (batch.hidden_out) return hand_on();
        if (after == 0) return rows_or_serial(stage, batch.output_count);
        return after == 1 && batch.logit_count ? tiles(model.head, batch.logit_count) : -1;
    }
    return items_of_step(stage, layer, (stage - 1) % STEPS);
}

int Forward::items_of_step(int stage, int layer, int step) {
    const Layer &of = model.layers[layer];
    const int every = count_before(layer), count = count_at(layer);
    if (step > (of.scans() ? ATTEND : ROPE) && is_unread(layer)) return -1;
    if (step >= GATE_UP && step <= DOWN && !model.dense_ffn(of)) return 0;
    const bool is_of_experts = step == ROUTER || step == ROUTE || (step > DOWN && step <= COMBINE);
    if (is_of_experts && !of.shape.has_experts) return 0;
    const bool is_of_inputs = step < ATTENTION_NORM || step > FED;
    if (is_of_inputs && (!shape.layer_input || (step < ATTENTION_NORM && layer > 0))) return 0;
    switch (step) {
        case INPUTS: return tiles(model.input_projection, every);
        case INPUTS_NORMED: return rows_or_serial(stage, every);
        case ATTENTION_NORM: keep(layer); return rows_or_serial(stage, every);
        case ROPE: return rows_or_serial(stage, every);
        case QKV: return (of.qkv.tiles - first_qkv_tile(layer)) * groups(every);
        case ATTEND:
            space.attention.k = model.attended_width(of.shape);
            if (of.scans()) return scan_items();
            return of.convolves() ? rows_or_serial(stage, count) : open_attention(layer);
        case ATTENDED:
            if (of.convolves()) return 0;
            if (of.scans()) return rows_or_serial(stage, count);
            if (goes_straight(space.attention) && !adapts(layer, ::Part::output)) return 0;
            return rows_or_serial(stage, count);
        case OUTPUT: return tiles(of.output, count);
        case GATE_UP:
            space.ffn.k = model.meeting ? shape.ffn : model.dense_ffn(of);
            return tiles(of.gate_up, count) / model.ffn_parts();
        case GATED:
            if (goes_straight(space.ffn) && !adapts(layer, ::Part::down)) return 0;
            return rows_or_serial(stage, count);
        case DOWN: return tiles(of.down, count);
        case ROUTER: return tiles(of.router, count);
        case EXPERT_NORM: return of.expert_norm.empty() ? 0 : rows_or_serial(stage, count);
        case EXPERT_IN: return open_experts(layer);
        case EXPERT_UP: return up_items;
        case EXPERT_GATED:
            return goes_straight(space.expert_ffn) ? 0 : rows_or_serial(stage, place_count(layer));
        case EXPERT_DOWN: return down_items;
        case MIXED: return of.after_attention.empty() ? 0 : rows_or_serial(stage, count);
        case FED: return of.after_ffn.empty() ? 0 : rows_or_serial(stage, count);
        case INPUT_GATE:
            space.ffn.k = shape.layer_input;
            return tiles(of.input_gate, count);
        case INPUT_GATED: return goes_straight(space.ffn) ? 0 : rows_or_serial(stage, count);
        case INPUT_OUTPUT: return tiles(of.input_output, count);
        case FFN_NORM: return shape.is_parallel ? 0 : rows_or_serial(stage, count);
        default: return rows_or_serial(stage, count);
    }
}

void Forward::run(int stage, int item, int thread) {
    int layer = (stage - 1) / STEPS, step = (stage - 1) % STEPS;
    bool last = stage > 0 && layer == layers;
    const Turn turn{item, model.pool.next_item(thread)};
    if (last && step == 1) return multiply_head(turn);
    if (stage == 0 || last) return run_rows(stage, item);
    const Layer &of = model.layers[layer];
    switch (step) {
        case QKV: return multiply_qkv(layer, turn);
        case ATTEND:
            if (of.scans()) return scan(layer, item, space.slabs[thread].as<float>());
            if (of.convolves()) return run_rows(stage, item);
            return attend(layer, item, *model.scratch[thread]);
        case OUTPUT:
            return multiply_into_hidden({layer, ::Part::output}, layer, of.output,
                                        of.attends() ? space.attention : space.mixed, turn,
                                        !of.after_attention.empty());
        case GATE_UP: return shape.is_gated ? multiply_gate_up(layer, turn) : multiply_up(layer, turn);
        case DOWN:
            return multiply_into_hidden({layer, ::Part::down}, layer, of.down, space.ffn, turn,
                                        !of.after_ffn.empty());
        case INPUTS: return multiply_inputs(turn);
        case INPUT_GATE: return multiply_input_gate(layer, turn);
        case INPUT_OUTPUT:
            return multiply_into_hidden({}, layer, of.input_output, space.ffn, turn, true);
        case ROUTER: return multiply_router(layer, turn);
        case EXPERT_IN: return gather_expert(item);
        case EXPERT_UP: return multiply_expert_up(layer, turn);
        case EXPERT_DOWN: return multiply_expert_down(layer, turn);
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
    batch.token_count = rows, batch.output_count = batch.logit_count = outputs;
    batch.logits = logits.data();
    batch.layers = shape.layers;
    Forward job(*this, batch, true);
    pool.run(job);
}
