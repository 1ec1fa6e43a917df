// The recurrent layers of a forward pass. A row reads one slot and writes another; nodes
// of a tree go on from their parents, and leave their inputs until it is known which are accepted.
#include "forward/recurrence.h"
#include "forward/forward.h"
#include "forward/rows.h"

namespace {

float *slot_of(const Batch &batch, int slot) {
    return slot < 0 ? nullptr : batch.state_slots + static_cast<size_t>(slot) * batch.state_numbers;
}

}  // namespace

// Which tokens are nodes, and what each token comes behind.
void Forward::find_parents() {
    parents.assign(batch.token_count, -1);
    state_rows.assign(batch.token_count, -1);
    node_numbers.assign(batch.token_count, -1);
    int nodes = 0;
    for (int r = 0; r < batch.state_row_count; r++) {
        const StateRow &row = batch.state_rows[r];
        for (int i = 0; i < row.count + row.nodes; i++) {
            const int at = row.first + i, last = row.first + row.count - 1;
            state_rows[at] = r;
            parents[at] = i ? at - 1 : -1;
            if (i < row.count) continue;
            const int parent = batch.state_parents[at];
            parents[at] = parent < 0 ? last : row.first + row.count + parent;
            node_numbers[at] = nodes++;
        }
    }
    model.kept.reserve(model, nodes);
}

// The channels of the tokens before one, oldest first; null before the text.
void Forward::find_window(int layer, int token, const float **window) {
    const RecurrentLayout layout(shape);
    const StateRow &row = batch.state_rows[state_rows[token]];
    float *slot = slot_of(batch, row.source);
    const float *before = slot ? layout.window_of(slot, model.layers[layer].number) : nullptr;
    int at = token, behind = 0;
    for (int tap = layout.taps - 2; tap >= 0; tap--) {
        if (behind == 0) at = parents[at];
        const bool is_here = behind == 0 && at >= row.first;
        if (!is_here) behind++;
        const int place = layout.taps - 1 - behind;
        window[tap] = is_here ? qkv(at) : before && place >= 0
                                              ? before + static_cast<size_t>(place) * layout.channels()
                                              : nullptr;
    }
}

void Forward::mix_token(int layer, int token) {
    const RecurrentLayout layout(shape);
    const Layer &of = model.layers[layer];
    const float *window[8];
    find_window(layer, token, window);
    const float *steps = qkv(token) + layout.channels() + layout.value_width();
    mix_inputs(layout, of, in_bf16, window, qkv(token), steps, mixed(token));
    if (node_numbers[token] < 0) return;
    float *to = model.kept.inputs(of.number, node_numbers[token]);
    memcpy(to, qkv(token), layout.channels() * sizeof(float));
    memcpy(to + layout.channels(), steps, layout.steps() * sizeof(float));
}

int Forward::scan_items() const {
    return only_products ? 0 : batch.state_row_count * RecurrentLayout(shape).items();
}

// Writes what the convolution will see behind a known token of a row.
void Forward::store_window(int layer, int token, float *slot) {
    const RecurrentLayout layout(shape);
    const size_t size = layout.channels();
    float *to = layout.window_of(slot, model.layers[layer].number);
    const float *window[8];
    find_window(layer, token, window);
    for (int i = 0; i + 1 < layout.taps; i++) {
        const float *from = i + 2 < layout.taps ? window[i + 1] : qkv(token);
        if (from) memcpy(to + i * size, from, size * sizeof(float));
        else memset(to + i * size, 0, size * sizeof(float));
    }
}

void Forward::scan(int layer, int item, float *slabs) {
    const RecurrentLayout layout(shape);
    const StateRow &row = batch.state_rows[item / layout.items()];
    const RecurrentItem part = layout.item(item % layout.items());
    const int number = model.layers[layer].number;
    const bool is_first = item % layout.items() == 0;
    const size_t size = layout.slab_numbers();
    if (float *from = slot_of(batch, row.source)) {
        load_slab(layout, layout.matrices_of(from, number), part, slabs);
    } else {
        memset(slabs, 0, size * sizeof(float));
    }
    auto keep = [&](int token, int position, int slot) {
        float *to = slot_of(batch, slot);
        if (!to) return;
        store_slab(layout, slabs, part, layout.matrices_of(to, number));
        if (!is_first) return;
        store_window(layer, token, to);
        to[0] = static_cast<float>(position);
    };
    for (int i = 0; i < row.count; i++) {
        const int token = row.first + i;
        recurrent_step(layout, part, layout.token(mixed(token)), slabs, slabs, scanned(token));
        for (int save = 0; save < row.saves; save++) {
            const int32_t *wanted = batch.state_saves + 2 * (row.first_save + save);
            if (wanted[0] == row.start + i + 1) keep(token, wanted[0], wanted[1]);
        }
    }
    keep(row.first + row.count - 1, row.start + row.count, row.target);
    for (int node = 0; node < row.nodes; node++) {
        const int token = row.first + row.count + node, parent = batch.state_parents[token];
        // More nodes than a mask has bits are a chain.
        const bool is_chain = row.nodes > NODES_MAX;
        recurrent_step(layout, part, layout.token(mixed(token)),
                   slabs + (is_chain ? 0 : parent + 1) * size,
                   slabs + (is_chain ? 0 : node + 1) * size, scanned(token));
    }
}

void Forward::gate_scanned(int layer, int number) {
    const int token = token_at(layer, number);
    float *to = attended(number);
    if (RecurrentLayout(shape).is_mamba) gate_groups(layer, token, to);
    else gate_heads(layer, token, to);
    space.mixed.put_row(number, to);
}

// Norms what each head has come to, and gates it.
void Forward::gate_heads(int layer, int token, float *to) {
    const RecurrentLayout layout(shape);
    const Layer &of = model.layers[layer];
    const int size = layout.value_size;
    const float *gates = qkv(token) + layout.channels();
    for (int head = 0; head < layout.value_heads; head++) {
        float *own = to + head * size;
        for (int i = 0; i < size; i += LANES) {
            Floats x = load_first(scanned(token) + head * size + i, size - i);
            store_first(own + i, in_bf16 ? round_to_bf16(x) : x, size - i);
        }
        (in_bf16 ? rms_norm<true> : rms_norm<false>)(own, of.gated_norm.data(), size,
                                                    shape.norm_epsilon, own);
        for (int i = 0; i < size; i += LANES) {
            Floats y = load_first(own + i, size - i) * silu(load_first(gates + head * size + i, size - i));
            store_first(own + i, in_bf16 ? round_to_bf16(y) : y, size - i);
        }
    }
}

// Adds values to what heads have come to, gates it, and norms that of each key head together.
void Forward::gate_groups(int layer, int token, float *to) {
    const RecurrentLayout layout(shape);
    const Layer &of = model.layers[layer];
    const int size = layout.value_size, group = layout.value_width() / layout.key_heads;
    const float *gates = qkv(token) + layout.channels();
    const float *values = layout.token(mixed(token)).value;
    for (int head = 0; head < layout.value_heads; head++) {
        const int first = head * size;
        for (int i = 0; i < size; i += LANES) {
            Floats y = fma(broadcast(of.skip[head]), load_first(values + first + i, size - i),
                           load_first(scanned(token) + first + i, size - i));
            y = y * silu(load_first(gates + first + i, size - i));
            store_first(to + first + i, y, size - i);
        }
    }
    for (int first = 0; first < layout.value_width(); first += group) {
        (in_bf16 ? rms_norm<true, true> : rms_norm<false>)(to + first, of.gated_norm.data() + first,
                                                          group, shape.norm_epsilon, to + first);
    }
}

namespace {

// Takes states along accepted nodes: nothing but what a scan does.
struct Advance : Job {
    Model &model;
    const Batch &batch;
    const PathRow *rows;
    int count;
    RecurrentLayout layout;
    int layers;
    std::vector<float> mixed;            // [layer][row][path]
    size_t path_max = 0;

    Advance(Model &model, const Batch &batch, const PathRow *rows, int count)
        : model(model), batch(batch), rows(rows), count(count), layout(model.shape),
          layers(model.recurrent_layers) {
        for (int i = 0; i < count; i++) path_max = std::max<size_t>(path_max, rows[i].count);
        mixed.resize(layers * count * path_max * layout.mixed());
    }
    int open(int stage) override {
        if (stage > 2 || !count) return -1;
        return layers * count * (stage == 1 ? layout.items() : 1);
    }
    void run(int stage, int item, int) override {
        if (stage == 1) return step(item / layout.items(), layout.item(item % layout.items()));
        stage == 0 ? mix(item) : store(item);
    }
    float *mixed_of(int item, int depth) {
        return mixed.data() + (item * path_max + depth) * layout.mixed();
    }
    const float *inputs(int item, int depth) {
        return model.kept.inputs(item / count, rows[item % count].nodes[depth]);
    }
    float *slot(int item, int index) {
        return batch.state_slots + static_cast<size_t>(index) * batch.state_numbers;
    }
    // What comes `back` tokens before the one at a depth of the path.
    const float *behind(int item, int depth, int back) {
        if (depth - back >= 0) return inputs(item, depth - back);
        const int place = layout.taps - 1 + depth - back;
        const float *window = layout.window_of(slot(item, rows[item % count].target), item / count);
        return place < 0 ? nullptr : window + static_cast<size_t>(place) * layout.channels();
    }
    void mix(int item) {
        const Layer &layer = model.layers[model.recurrent_layer(item / count)];
        for (int depth = 0; depth < rows[item % count].count; depth++) {
            const float *window[8];
            for (int tap = 0; tap + 1 < layout.taps; tap++) {
                window[tap] = behind(item, depth, layout.taps - 1 - tap);
            }
            const float *own = inputs(item, depth);
            mix_inputs(layout, layer, model.shape.in_bf16, window, own, own + layout.channels(),
                       mixed_of(item, depth));
        }
    }
    void step(int item, const RecurrentItem &part) {
        const PathRow &row = rows[item % count];
        float slab[256 * LANES];
        float *target = layout.matrices_of(slot(item, row.target), item / count);
        load_slab(layout, target, part, slab);
        for (int depth = 0; depth < row.count; depth++) {
            recurrent_step(layout, part, layout.token(mixed_of(item, depth)), slab, slab, nullptr);
            for (int save = 0; save < row.saves; save++) {
                const int32_t *wanted = row.wanted + 2 * save;
                if (wanted[0] != row.position + depth + 1) continue;
                store_slab(layout, slab, part,
                           layout.matrices_of(slot(item, wanted[1]), item / count));
            }
        }
        store_slab(layout, slab, part, target);
    }
    void store_window(int item, int depth, int index) {
        const size_t size = layout.channels(), places = layout.taps - 1;
        std::vector<float> window(places * size);
        for (size_t place = 0; place < places; place++) {
            const float *from = behind(item, depth, static_cast<int>(places - 1 - place));
            memcpy(window.data() + place * size, from, size * sizeof(float));
        }
        float *to = slot(item, index);
        memcpy(layout.window_of(to, item / count), window.data(), window.size() * sizeof(float));
        to[0] = static_cast<float>(rows[item % count].position + depth + 1);
    }
    // Snapshots first: they are made of what the target still holds.
    void store(int item) {
        const PathRow &row = rows[item % count];
        for (int depth = 0; depth < row.count; depth++) {
            for (int save = 0; save < row.saves; save++) {
                const int32_t *wanted = row.wanted + 2 * save;
                if (wanted[0] == row.position + depth + 1) store_window(item, depth, wanted[1]);
            }
        }
        store_window(item, row.count - 1, row.target);
    }
};

}  // namespace

void Model::advance(const Batch &batch, const PathRow *rows, int count) {
    Advance job(*this, batch, rows, count);
    pool.run(job);
}

void KeptInputs::reserve(const Model &model, int nodes) {
    const RecurrentLayout layout(model.shape);
    width = layout.channels() + layout.steps();
    if (nodes <= capacity) return;
    capacity = round_up(nodes, 16);
    memory = Memory(static_cast<size_t>(model.recurrent_layers) * capacity * width * sizeof(float));
}
