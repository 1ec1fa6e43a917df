// Layers that convolve: what each channel of a token's tapped neighbours is weighed with. The inputs
// lie in the layer's planes of the pages, a piece among the keys and a piece among the values of
// each; so a tree's nodes, copies and hits are treated as those of keys are.
#include "forward/forward.h"
#include "forward/rows.h"

namespace {

int node_before(int node, int64_t ancestors) {
    while (--node >= 0 && !(ancestors >> node & 1)) {}
    return node;
}

// `count` inputs of a piece, as floats.
Floats load_inputs(const void *piece, int first, int count, bool in_fp32) {
    if (in_fp32) return load_first(static_cast<const float *>(piece) + first, count);
    return load_bf16(static_cast<const bf16 *>(piece) + first, count);
}

}  // namespace

void Forward::find_taps() {
    const int before = shape.taps - 1;
    tap_slots.assign(static_cast<size_t>(batch.token_count) * before, -1);
    for (int r = 0; r < batch.row_count; r++) {
        const int first = batch.row_starts[r], count = batch.row_starts[r + 1] - first;
        const Row row{batch.block_tables + static_cast<size_t>(r) * batch.table_width,
                      batch.block_size, batch.kv_lengths[r] - count};
        for (int token = 0; token < count; token++) {
            int64_t *slots = &tap_slots[static_cast<size_t>(first + token) * before];
            int node = token;
            for (int back = before - 1; back >= 0; back--) {
                bool is_masked = count <= NODES_MAX && node > 0;
                node = is_masked ? node_before(node, ancestors[first + token]) : node - 1;
                if (row.prefix + node >= 0) slots[back] = row.slot(row.prefix + node);
            }
        }
    }
}

int Forward::piece_size() const { return shape.kv_heads * shape.head_size; }

void *Forward::inputs_at(int layer, int64_t slot, int piece) const {
    const size_t before = static_cast<size_t>(piece / 2) * batch.block_count * batch.block_size;
    return at_head(piece % 2 ? batch.values : batch.keys, layer, slot + before, 0);
}

// Writes the inputs of a row: x times its gate.
void Forward::store_inputs(int layer, int row) {
    const int size = shape.hidden, each = piece_size();
    const float *gate = qkv(row), *x = gate + 2 * size;
    for (int piece = 0; piece * each < size; piece++) {
        void *to = inputs_at(layer, batch.slots[row], piece);
        const int begin = piece * each, count = std::min(each, size - begin);
        for (int i = 0; i < count; i += LANES) {
            const int left = count - i, at = begin + i;
            Floats input = without_tiny(load_first(gate + at, left) * load_first(x + at, left));
            if (model.attention(layer).in_fp32()) store_first(static_cast<float *>(to) + i, input, left);
            else store_bf16(static_cast<bf16 *>(to) + i, input, left);
        }
    }
}

// What a row comes to before the last product, by its number behind the inputs.
void Forward::convolve(int layer, int number) {
    const int row = token_at(layer, number), size = shape.hidden, each = piece_size();
    const int before = shape.taps - 1;
    const float *weights = model.layers[layer].taps.data(), *gate = qkv(row) + size;
    const bool has_bias = model.layers[layer].taps.size() > static_cast<size_t>(shape.taps) * size;
    const int64_t *slots = tap_slots.data() + static_cast<size_t>(row) * before;
    float *to = attended(number);
    for (int piece = 0; piece * each < size; piece++) {
        const int begin = piece * each, count = std::min(each, size - begin);
        for (int i = 0; i < count; i += LANES) {
            const int left = count - i, at = begin + i;
            Floats sum = broadcast(0.0f);
            for (int tap = 0; tap <= before; tap++) {
                const int64_t slot = tap < before ? slots[tap] : batch.slots[row];
                if (slot < 0) continue;
                Floats input = load_inputs(inputs_at(layer, slot, piece), i, left,
                                           model.attention(layer).in_fp32());
                sum = fma(input, load_first(weights + tap * size + at, left), sum);
            }
            if (has_bias) sum = sum + load_first(weights + shape.taps * size + at, left);
            if (in_bf16) sum = round_to_bf16(sum);
            Floats y = sum * load_first(gate + at, left);
            store_first(to + at, in_bf16 ? round_to_bf16(y) : y, left);
        }
    }
    space.mixed.put_row(number, to);
}
