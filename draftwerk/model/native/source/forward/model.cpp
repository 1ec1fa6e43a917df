#include "forward/model.h"

#include "forward/recurrence.h"

#include <algorithm>
#include <cmath>

#include "matrix/packing.h"

static Shard whole(const Shape &shape) {
    return {{0, shape.heads}, {0, shape.kv_heads}, {0, shape.hidden}, {0, shape.ffn},
            {0, shape.vocab}};
}

Model::Model(Pool &pool, const Shape &shape, const LayerShape *own, const float *frequencies)
    : shape(shape), shard(whole(shape)), pool(pool),
      inverse_frequencies(frequencies, frequencies + shape.angles()),
      layers(shape.layers) {
    for (int layer = 0; layer < shape.layers; layer++) {
        layers[layer].shape = own[layer];
        if (layers[layer].scans()) layers[layer].number = recurrent_layers++;
        auto found = std::find_if(views.begin(), views.end(), [&](const View &one) {
            return one.of.window == own[layer].window && one.of.head_size == own[layer].head_size &&
                   one.of.kv_heads == own[layer].kv_heads;
        });
        layers[layer].view = static_cast<int>(found - views.begin());
        if (found == views.end()) views.push_back({own[layer], {}});
        if (!own[layer].has_experts) continue;
        layers[layer].expert_gate_up.resize(shape.experts);
        layers[layer].expert_down.resize(shape.experts);
    }
    split(shard, nullptr);
}

void Model::split(const Shard &own, Meeting *with) {
    shard = own, meeting = with;
    for (View &view : views) view.shape = attention(view.of);
    widths = {std::max(widest(&Model::qkv_width), own_inputs()),
              std::max(widest(&Model::attended_width), own_mixed()),
              std::max(widest(&Model::ffn_size), shape.layer_input)};
    scratch.clear();
    for (int thread = 0; thread < pool.size(); thread++) {
        scratch.push_back(std::make_unique<AttentionScratch>(widest_attention()));
    }
}

void Model::learn(bool begins) {
    learns = begins;
    for (Layer &layer : layers) {
        const AttentionShape &own = views[layer.view].shape;
        if (begins) layer.begin_forms(own);
        else if (layer.attends() && layer.stores()) layer.forms = layer.learnt;
    }
    for (Layer &layer : layers) {
        if (!layer.stores()) layer.forms = layers[layer.shape.kv_from].forms;
    }
}

void Layer::begin_forms(const AttentionShape &attention) {
    const int floats = attention.kv->form_size(attention.head_size);
    forms.resize(static_cast<size_t>(attention.kv_heads) * floats);
    for (int head = 0; head < attention.kv_heads; head++) {
        attention.kv->begin_form(attention.head_size, &forms[head * floats]);
    }
}

AttentionShape Model::attention(const LayerShape &of) const {
    const int size = of.head_size ? of.head_size : shape.head_size;
    const float usual = 1.0f / std::sqrt(static_cast<float>(size));
    return {shard.heads.count, of.kv_heads ? of.kv_heads : shard.kv_heads.count, size,
            &kv_format(shape.kv_format),
            shape.attention_scale > 0 ? shape.attention_scale : usual, shape.attention_softcap};
}

// One that has room for each of the views.
AttentionShape Model::widest_attention() const {
    AttentionShape widest = views.front().shape;
    int group = 1;
    for (const View &view : views) {
        group = std::max(group, view.shape.group());
        widest.kv_heads = std::max(widest.kv_heads, view.shape.kv_heads);
        widest.head_size = std::max(widest.head_size, view.shape.head_size);
    }
    widest.heads = group * widest.kv_heads;
    return widest;
}

int Model::qkv_rows(const LayerShape &of) const {
    const AttentionShape own = attention(of);
    const int stored = of.kv_from < 0 ? 2 - of.keys_are_values : 0;
    return (own.heads * (1 + shape.has_output_gate) + stored * own.kv_heads) * own.head_size;
}

int Model::qkv_width(const LayerShape &of) const {
    const AttentionShape own = attention(of);
    return qkv_rows(of) + (of.keys_are_values ? own.kv_heads * own.head_size : 0);
}

int Model::widest(int (Model::*width)(const LayerShape &) const) const {
    int found = 0;
    for (const Layer &layer : layers) found = std::max(found, (this->*width)(layer.shape));
    return found;
}

int Model::own_inputs() const {
    return shape.taps ? 3 * shape.hidden : recurrent_layers ? RecurrentLayout(shape).inputs() : 0;
}

int Model::own_mixed() const {
    return shape.taps ? shape.hidden : recurrent_layers ? RecurrentLayout(shape).value_width() : 0;
}

int Model::recurrent_layer(int number) const {
    int layer = 0;
    while (!layers[layer].scans() || layers[layer].number != number) layer++;
    return layer;
}

size_t Model::arena_bytes(Kind kind, Kind head_kind) const {
    auto matrix_bytes = [&](Kind of, int n, int k, int parts) {
        if (format() != Format::stored) return packed_bytes(format(), n, k, parts);
        return parts * stored_bytes(of, n / parts, round_up(k, BLOCK));
    };
    auto bytes = [&](int n, int k, int parts) { return matrix_bytes(kind, n, k, parts); };
    auto ffn = [&](int size, int inputs) {
        return bytes(ffn_parts() * size, shape.hidden, ffn_parts()) +
               bytes(shard.hidden.count, inputs, 1);
    };
    size_t total = router_bytes() + matrix_bytes(head_kind, shard.vocab.count, shape.hidden, 1);
    const int input = shape.layer_input;
    if (input) total += bytes(shape.inputs_width(), shape.hidden, 1);
    for (const Layer &layer : layers) {
        const LayerShape &of = layer.shape;
        const bool attends = layer.attends();
        total += bytes(attends ? qkv_rows(of) : own_inputs(), shape.hidden, 1) +
                 bytes(shard.hidden.count, attends ? attended_width(of) : own_mixed(), 1);
        if (input) total += bytes(input, shape.hidden, 1) + bytes(shape.hidden, input, 1);
        if (!layer.shape.has_experts) {
            total += ffn(dense_ffn(layer), ffn_size(of));
            continue;
        }
        total += shape.experts * ffn(shape.expert_ffn, shape.expert_ffn);
        if (shape.shared_ffn) total += ffn(shape.shared_ffn, shape.shared_ffn);
    }
    return total;
}

size_t Model::router_bytes() const {
    size_t routers = 0;
    for (const Layer &layer : layers) routers += layer.shape.has_experts != 0;
    return routers ? routers * packed_bytes(Format::fp32, shape.router_rows(), shape.hidden, 1) : 0;
}

void Model::set_matrix(int layer, Part part, int expert, const Source &source) {
    bool is_gate_up = part == Part::gate_up || part == Part::expert_gate_up;
    place(layer, part, expert) = packed(pool, part == Part::router ? Format::fp32 : format(),
                                        source, is_gate_up ? ffn_parts() : 1, &arena);
}

void Model::set_stored(int layer, Part part, int expert, const std::vector<StoredPart> &parts,
                       int k, const float *bias) {
    bool is_gate_up = part == Part::gate_up || part == Part::expert_gate_up;
    place(layer, part, expert) = stored(pool, parts, k, is_gate_up && shape.is_gated, bias, &arena);
}

Matrix &Model::place(int layer, Part part, int expert) {
    if (part == Part::head) return head;
    if (part == Part::embedding) return embedding.stored;
    if (part == Part::input_embedding) return input_embedding.stored;
    if (part == Part::input_projection) return input_projection;
    Layer &of = layers[layer];
    if (part == Part::input_gate) return of.input_gate;
    if (part == Part::input_output) return of.input_output;
    if (part == Part::router) return of.router;
    if (part == Part::expert_gate_up) return of.expert_gate_up[expert];
    if (part == Part::expert_down) return of.expert_down[expert];
    Matrix *parts[] = {&of.qkv, &of.output, &of.gate_up, &of.down};
    return *parts[static_cast<int>(part)];
}

void Embedding::get(int token, int size, const Matrix &tied, float *values) const {
    if (!rows) return unpack_row(stored.tiles ? stored : tied, token, values);
    size_t begin = static_cast<size_t>(token) * size;
    for (int i = 0; i < size; i++) {
        values[i] = is_bf16 ? widen(static_cast<const bf16 *>(rows)[begin + i])
                            : static_cast<const float *>(rows)[begin + i];
    }
}

void Model::set_vector(int layer, Vector which, const float *values, int size) {
    std::vector<float> copy(values, values + size);
    if (which == Vector::norm || which == Vector::input_norm) {
        (which == Vector::norm ? norm : input_norm) = std::move(copy);
        return;
    }
    Layer &of = layers[layer];
    std::vector<float> *vectors[] = {&of.attention_norm, &of.ffn_norm, &of.query_norm,
                                     &of.key_norm, nullptr, &of.after_attention, &of.after_ffn,
                                     &of.taps, &of.sinks, &of.decay, &of.step_bias,
                                     &of.gated_norm, &of.choice_bias, &of.skip, &of.value_norm,
                                     &of.after_input, &of.scalar, nullptr, &of.expert_norm,
                                     &of.after_experts, &of.after_dense, &of.router_norm,
                                     &of.expert_scales};
    *vectors[static_cast<int>(which)] = std::move(copy);
}

static TileColumns columns_of(const Matrix &matrix, int parts, int size) {
    TileColumns found(matrix.tiles);
    for (int tile = 0; tile < matrix.tiles; tile++) {
        for (int i = 0; i < TILE; i++) {
            int column = matrix.first_column(tile) + i;
            bool is_there = i < matrix.column_count(tile);
            if (parts == 2) {            // their tiles alternate
                int own = tile / 2 * TILE + i;
                column = tile % 2 * size + own, is_there = own < size;
            }
            found[tile][i] = is_there ? column : -1;
        }
    }
    return found;
}

std::array<TileColumns, ADAPTED_PARTS> Model::columns_of(const Layer &of) const {
    return {::columns_of(of.qkv, 1, 0), ::columns_of(of.output, 1, 0),
            ::columns_of(of.gate_up, ffn_parts(), dense_ffn(of)), ::columns_of(of.down, 1, 0)};
}

void Model::add_adapter(const std::vector<AdapterModule> &modules) {
    std::vector<std::array<TileColumns, ADAPTED_PARTS>> columns;
    for (const Layer &layer : layers) columns.push_back(columns_of(layer));
    adapters.push_back(packed_adapter(adapter_format(), modules, columns));
    for (const auto &layer : adapters.back().layers) {
        for (const AdapterPart &part : layer) adapted_ranks = std::max(adapted_ranks, part.ranks);
    }
    workspace.rows = 0;
}

void Model::reserve_adapters(int rows) {
    for (Operand &inner : workspace.inner) inner.reserve(adapter_format(), rows, adapted_ranks);
    if (workspace.normal.elementwise()) return;
    const int inputs[] = {shape.hidden, widest(&Model::attended_width), 0, ffn_width()};
    for (int part = 0; part < ADAPTED_PARTS; part++) {
        if (inputs[part]) {
            workspace.unquantised[part].reserve(adapter_format(), rows, inputs[part]);
        }
    }
}

// Of a batch of so many rows, each with a place for each of its experts.
void Model::reserve_experts(int rows) {
    Workspace &space = workspace;
    const int places = rows * shape.experts_used;
    auto floats = [](int count, int width) {
        return Memory(static_cast<size_t>(count) * round_up(width, TILE) * sizeof(float));
    };
    space.scores = floats(rows, shape.router_rows());
    space.weights = floats(rows, shape.experts_used + 1);
    space.chosen.resize(places);
    space.contributions = floats(places, shape.hidden);
    space.expert_gated = floats(places, shape.expert_ffn);
    space.routed.reserve(Format::fp32, rows, shape.hidden);
    space.expert_in.reserve(format(), places, shape.hidden);
    space.expert_ffn.reserve(format(), places, shape.expert_ffn);
}

void Model::reserve_scans(int rows) {
    const RecurrentLayout layout(shape);
    auto floats = [&](int width) {
        return Memory(static_cast<size_t>(rows) * round_up(width, TILE) * sizeof(float));
    };
    workspace.inputs = floats(layout.mixed());
    workspace.scanned = floats(layout.value_width());
    if (!workspace.slabs.empty()) return;
    for (int thread = 0; thread < pool.size(); thread++) {
        workspace.slabs.push_back(Memory((NODES_MAX + 1) * layout.slab_numbers() * sizeof(float)));
    }
}

void Model::reserve(int rows, int outputs) {
    Workspace &space = workspace;
    if (rows > space.rows) {
        rows = round_up(rows, 64);
        auto floats = [&](int width) {
            return Memory(static_cast<size_t>(rows) * round_up(width, TILE) * sizeof(float));
        };
        space.rows = rows;
        space.hidden = floats(shape.hidden);
        space.qkv = floats(inputs_width());
        space.attended = floats(mixed_width());
        space.gated = floats(ffn_width());
        space.cosine = floats(shape.angles());
        space.sine = floats(shape.angles());
        if (shape.layer_input) space.layer_inputs = floats(shape.inputs_width());
        if (shape.kept_tiles) {
            space.turn_cosine = floats(shape.rotary_pairs[0]);
            space.turn_sine = floats(shape.rotary_pairs[0]);
        }
        if (!layers.empty() && !layers.front().after_attention.empty()) space.delta = floats(shape.hidden);
        space.normal.reserve(format(), rows, shape.hidden);
        space.attention.reserve(format(), rows, widest(&Model::attended_width));
        if (own_mixed()) space.mixed.reserve(format(), rows, own_mixed());
        if (recurrent_layers) reserve_scans(rows);
        space.ffn.reserve(format(), rows, ffn_width());
        if (shape.experts) reserve_experts(rows);
        if (!adapters.empty()) reserve_adapters(rows);
    }
    if (outputs > space.outputs) {
        space.outputs = round_up(outputs, 64);
        space.last.reserve(format(), space.outputs, shape.hidden);
    }
}

const char *Model::refusal(const Batch &batch) const {
    auto outside = [](int32_t value, int32_t end) { return value < 0 || value >= end; };
    const int slot_count = batch.block_count * batch.block_size;
    const int window_slot_count = batch.window_block_count * batch.block_size;
    for (int i = 0; i < batch.token_count; i++) {
        if (outside(batch.tokens[i], shape.vocab)) return "a token is outside the vocabulary";
        if (outside(batch.slots[i], slot_count) ||
            (batch.window_slots && outside(batch.window_slots[i], window_slot_count))) {
            return "a slot is outside the pages";
        }
        if (batch.added_layers && outside(batch.added_rows[i], batch.added_count) &&
            batch.added_rows[i] != -1) {
            return "what is added to a token is not there";
        }
    }
    const int pairs = batch.position_count;
    const bool by_token = shape.kept_tiles || shape.temperature_beta > 0 || batch.both_ways;
    if (pairs != 1 && (pairs != shape.angles() || by_token || shape.sees_all)) {
        return "positions are another model's";
    }
    for (int i = 0; i < batch.token_count * pairs; i++) {
        if (batch.positions[i] < 0) return "a position is negative";
    }
    if (batch.added_layers >= shape.layers) return "there is no layer behind what is added";
    if (outside(batch.logit_count, batch.output_count + 1)) return "more logits than outputs";
    std::vector<bool> is_output(batch.token_count);
    for (int i = 0; i < batch.output_count; i++) {
        if (outside(batch.outputs[i], batch.token_count)) return "an output is outside the batch";
        if (is_output[batch.outputs[i]]) return "a token is two outputs";
        is_output[batch.outputs[i]] = true;
        bool begins = i == 0 || i == batch.logit_count;
        if (!begins && batch.outputs[i] < batch.outputs[i - 1]) return "outputs are not ascending";
    }
    if (batch.layers < 1 || batch.layers > shape.layers) return "no such number of layers";
    if (batch.layers < shape.layers && batch.output_count) return "logits need all layers";
    if (batch.row_starts[0] != 0 || batch.row_starts[batch.row_count] != batch.token_count) {
        return "row_starts do not cover the tokens";
    }
    for (int r = 0; r < batch.row_count; r++) {
        if (batch.adapters && batch.adapters[r] != -1 &&
            outside(batch.adapters[r], static_cast<int32_t>(adapters.size()))) {
            return "a row has an adapter that is not there";
        }
        int count = batch.row_starts[r + 1] - batch.row_starts[r];
        int blocks = (batch.kv_lengths[r] + batch.block_size - 1) / batch.block_size;
        if (count <= 0 || batch.kv_lengths[r] < count) return "a row's kv_length is too short";
        if (blocks > batch.table_width) return "a row's block table is too short";
        for (int i = 0; i < blocks; i++) {
            const size_t at = static_cast<size_t>(r) * batch.table_width + i;
            if (outside(batch.block_tables[at], batch.block_count) ||
                (batch.window_tables &&
                 outside(batch.window_tables[at], batch.window_block_count))) {
                return "a block is outside the pages";
            }
        }
        for (int i = 0; i < count; i++) {
            int at = batch.row_starts[r] + i;
            int64_t mask = batch.ancestors[at];
            if (batch.seen) {
                int least = i ? batch.seen[at - 1] : 1;
                if (batch.seen[at] < least || batch.seen[at] > batch.kv_lengths[r]) {
                    return "what tokens see falls within their row";
                }
            }
            if (mask == -1) continue;
            if (count > 63 || mask < 0 || mask >> i != 1) {
                return "ancestors name tokens that are not earlier ones of the row";
            }
        }
    }
    return nullptr;
}
