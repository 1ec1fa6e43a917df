// The rows of a batch that have adapters: A behind the stage that a matrix's operand comes from, B
// as a part of the matrix's own product.
#include "forward/forward.h"

void Forward::spread_adapters() {
    if (!batch.adapters) return;
    std::vector<bool> is_used(model.adapters.size());
    for (int r = 0; r < batch.row_count; r++) {
        if (batch.adapters[r] >= 0) is_used[batch.adapters[r]] = true;
    }
    for (size_t i = 0; i < is_used.size(); i++) {
        if (is_used[i]) used_adapters.push_back(&model.adapters[i]);
    }
    if (used_adapters.empty()) return;
    adapters.resize(batch.token_count);
    for (int r = 0; r < batch.row_count; r++) {
        const Adapter *own = batch.adapters[r] < 0 ? nullptr : &model.adapters[batch.adapters[r]];
        for (int i = batch.row_starts[r]; i < batch.row_starts[r + 1]; i++) adapters[i] = own;
    }
}

const AdapterPart *Forward::part_of(int layer, ::Part part, int row) const {
    if (adapters.empty()) return nullptr;
    const bool every = part == ::Part::qkv;
    const Adapter *own = adapters[every ? token_before(layer, row) : token_at(layer, row)];
    if (!own) return nullptr;
    const AdapterPart &found = own->layers[layer][static_cast<int>(part)];
    return found.ranks ? &found : nullptr;
}

bool Forward::adapts(int layer, ::Part part) const {
    for (const Adapter *one : used_adapters) {
        if (one->layers[layer][static_cast<int>(part)].ranks) return true;
    }
    return false;
}

template <class Each>
void Forward::each_run(int layer, ::Part part, int first, int count, int most, Each each) const {
    for (int row = first, end; row < first + count; row = end) {
        const AdapterPart *own = part_of(layer, part, row);
        end = row + 1;
        while (end < first + count && end - row < most && part_of(layer, part, end) == own) end++;
        if (own) each(*own, row, end - row);
    }
}

const Operand &Forward::input_of(::Part part) const {
    const Operand *own[] = {&space.normal, &space.attention, &space.normal, &space.ffn};
    const int index = static_cast<int>(part);
    return own[index]->elementwise() ? *own[index] : space.unquantised[index == 2 ? 0 : index];
}

void Forward::put_unquantised(::Part part, int row, const float *values) {
    if (adapters.empty() || space.normal.elementwise()) return;
    space.unquantised[static_cast<int>(part)].put_row(row, values);
}

void Forward::multiply_a_after(int stage, int first, int count) {
    if (adapters.empty() || stage == 0) return;
    const int layer = (stage - 1) / STEPS;
    if (layer == layers) return;
    auto multiply = [&](::Part part) {
        each_run(layer, part, first, count, ADAPTED_ROWS,
                 [&](const AdapterPart &own, int row, int rows) {
                     multiply_a(own, input_of(part), row, rows,
                                space.inner[static_cast<int>(part)]);
                 });
    };
    switch ((stage - 1) % STEPS) {
        case ATTENTION_NORM:
            multiply(::Part::qkv);
            if (shape.is_parallel) multiply(::Part::gate_up);
            return;
        case ATTENDED: return multiply(::Part::output);
        case FFN_NORM: return multiply(::Part::gate_up);
        case GATED: return multiply(::Part::down);
        default: return;
    }
}

void Forward::fetch_adapters(Adapted of, int tile) const {
    if (!of.is_any()) return;
    for (const Adapter *one : used_adapters) {
        const AdapterPart &part = one->layers[of.layer][static_cast<int>(of.part)];
        if (part.ranks) fetch_b(one->format, part.tiles[tile]);
    }
}

void Forward::add_adapters(Adapted of, int tile, int first, int count, float *out) const {
    if (adapters.empty() || !of.is_any()) return;
    each_run(of.layer, of.part, first, count, count,
             [&](const AdapterPart &own, int row, int rows) {
                 add_b(own.tiles[tile], space.inner[static_cast<int>(of.part)], row, rows,
                       out + (row - first) * TILE);
             });
}
