// The forward pass. Every stage works on rows, or on tiles of columns; no stage lets one row see
// another, except attention, and that only through positions.
#include <algorithm>
#include <cmath>

#include "model.h"
#include "rows.h"

namespace {

// Up to here a stage of rows is done by whoever ended the stage before: a barrier costs more.
constexpr int SERIAL_ROWS = 4;
// From here on products are bound by arithmetic, and fetch the next tile meanwhile.
constexpr int FETCH_ROWS = 6;
// Rows whose activations stay in a core's L2 while it goes through the tiles.
constexpr int GROUP_ROWS = 128;

enum Step {
    ATTENTION_NORM, QKV, ROPE, ATTEND, ATTENDED, OUTPUT, FFN_NORM, GATE_UP, GATED, DOWN, STEPS
};

struct Forward : Job {
    Model &model;
    const Shape &shape;
    const Batch &batch;
    Workspace &space;
    const AttentionShape attention;
    const bool rounds;
    std::vector<int64_t> ancestors;      // of masked rows, -1 spelt out
    std::vector<Block> blocks;
    // Few blocks are split tile by tile between threads; the last to finish a block merges.
    struct Split {
        int block, kv_head, tile, tiles, lane;
        size_t rows_before;              // in the partial results
    };
    std::vector<Split> splits;
    std::vector<std::atomic<int>> pending;
    size_t partial_rows = 0;

    const bool only_products;            // for measuring

    Forward(Model &model, const Batch &batch, bool only_products = false)
        : model(model), shape(model.shape), batch(batch), space(model.workspace),
          attention(model.attention()), rounds(shape.rounds), only_products(only_products) {
        if (only_products) return;
        cut_into_blocks();
        cut_into_splits();
    }

    int open(int stage) override {
        int items = items_of(stage);
        return only_products && items > 0 && !is_product(stage) ? 0 : items;
    }

    bool is_product(int stage) const {
        int layer = (stage - 1) / STEPS, step = (stage - 1) % STEPS;
        if (stage == 0 || layer == shape.layers) return stage > 0 && step == 1;
        return step == QKV || step == OUTPUT || step == GATE_UP || step == DOWN;
    }

    int items_of(int stage) {
        if (stage == 0) return rows_or_serial(stage, batch.token_count);
        int layer = (stage - 1) / STEPS;
        if (layer == shape.layers) {
            int after = (stage - 1) % STEPS;
            if (after == 0) return rows_or_serial(stage, batch.output_count);
            return after == 1 && batch.output_count ? tiles(model.head, batch.output_count) : -1;
        }
        const Layer &of = model.layers[layer];
        switch ((stage - 1) % STEPS) {
            case QKV: return tiles(of.qkv, batch.token_count);
            case ATTEND: return open_attention();
            case ATTENDED:
                return space.attention.elementwise() ? 0 : rows_or_serial(stage, batch.token_count);
            case OUTPUT: return tiles(of.output, batch.token_count);
            case GATE_UP: return tiles(of.gate_up, batch.token_count) / 2;
            case GATED:
                return space.ffn.elementwise() ? 0 : rows_or_serial(stage, batch.token_count);
            case DOWN: return tiles(of.down, batch.token_count);
            default: return rows_or_serial(stage, batch.token_count);
        }
    }

    void run(int stage, int item, int thread) override {
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

    // ---- rows

    int rows_or_serial(int stage, int count) {
        if (only_products) return 0;
        if (count > SERIAL_ROWS) return (count + SERIAL_ROWS - 1) / SERIAL_ROWS;
        for (int row = 0; row < count; row++) run_row(stage, row);
        return 0;
    }

    void run_rows(int stage, int item) {
        bool last = stage > 0 && (stage - 1) / STEPS == shape.layers;
        int count = last ? batch.output_count : batch.token_count;
        int end = std::min(count, (item + 1) * SERIAL_ROWS);
        for (int row = item * SERIAL_ROWS; row < end; row++) run_row(stage, row);
    }

    void run_row(int stage, int row) {
        if (stage == 0) return embed(row);
        int index = (stage - 1) / STEPS;
        if (index == shape.layers) {
            return norm(model.norm, batch.outputs[row], space.last, row);
        }
        const Layer &layer = model.layers[index];
        switch ((stage - 1) % STEPS) {
            case ATTENTION_NORM: return norm(layer.attention_norm, row, space.normal, row);
            case ROPE: return rope(layer, index, row);
            case ATTENDED: return space.attention.put_row(row, attended(row));
            case FFN_NORM: return norm(layer.ffn_norm, row, space.normal, row);
            default: return space.ffn.put_row(row, gated_row(row));
        }
    }

    float *hidden(int row) { return space.hidden.as<float>() + row * width(shape.hidden); }
    float *qkv(int row) { return space.qkv.as<float>() + row * width(model.qkv_width()); }
    float *attended(int row) {
        return space.attended.as<float>() + row * width(model.attended_width());
    }
    float *gated_row(int row) { return space.gated.as<float>() + row * width(shape.ffn); }
    float *cosine(int row) { return space.cosine.as<float>() + row * width(shape.head_size / 2); }
    float *sine(int row) { return space.sine.as<float>() + row * width(shape.head_size / 2); }
    static size_t width(int columns) { return round_up(columns, TILE); }

    void embed(int row) {
        float *x = hidden(row);
        size_t begin = static_cast<size_t>(batch.tokens[row]) * shape.hidden;
        for (int i = 0; i < shape.hidden; i++) {
            x[i] = model.embedding_is_bf16
                       ? widen(static_cast<const bf16 *>(model.embedding)[begin + i])
                       : static_cast<const float *>(model.embedding)[begin + i];
        }
        for (int i = 0; i < shape.head_size / 2; i++) {
            float angle = static_cast<float>(batch.positions[row]) * model.inverse_frequencies[i];
            cosine(row)[i] = std::cos(angle) * shape.rope_magnitude;
            sine(row)[i] = std::sin(angle) * shape.rope_magnitude;
        }
        if (!rounds) return;
        for (int i = 0; i < shape.head_size / 2; i += LANES) {
            _mm512_storeu_ps(cosine(row) + i, rounded<true>(_mm512_loadu_ps(cosine(row) + i)));
            _mm512_storeu_ps(sine(row) + i, rounded<true>(_mm512_loadu_ps(sine(row) + i)));
        }
    }

    void norm(const std::vector<float> &weight, int row, Operand &to, int to_row) {
        alignas(64) float values[1 << 14];
        (rounds ? normalise<true> : normalise<false>)(hidden(row), weight.data(), shape.hidden,
                                                      shape.norm_epsilon, values);
        to.put_row(to_row, values);
    }

    void rope(const Layer &layer, int index, int row) {
        float *heads = qkv(row);
        const int size = shape.head_size, keys = shape.heads, values = keys + shape.kv_heads;
        for (int head = 0; head < values; head++) {
            float *at = heads + head * size;
            const auto &weight = head < keys ? layer.query_norm : layer.key_norm;
            if (!weight.empty()) {
                (rounds ? normalise<true> : normalise<false>)(at, weight.data(), size,
                                                              shape.norm_epsilon, at);
            }
            (rounds ? rotate<true> : rotate<false>)(at, cosine(row), sine(row), size / 2);
        }
        for (int head = 0; head < shape.kv_heads; head++) {
            size_t place = (slot_index(index, batch.slots[row]) * shape.kv_heads + head) * size;
            store_kv(heads + (keys + head) * size, size, shape.kv_is_fp32, element(batch.keys, place));
            store_kv(heads + (values + head) * size, size, shape.kv_is_fp32,
                     element(batch.values, place));
        }
    }

    size_t slot_index(int layer, size_t slot) const {
        return static_cast<size_t>(layer) * batch.block_count * batch.block_size + slot;
    }
    void *element(void *base, size_t index) const {
        return static_cast<uint8_t *>(base) + index * (shape.kv_is_fp32 ? 4 : 2);
    }

    // ---- columns

    static int groups(int rows) { return (rows + GROUP_ROWS - 1) / GROUP_ROWS; }
    static int tiles(const Matrix &matrix, int rows) { return matrix.tiles * groups(rows); }

    // Calls `each(first row, rows, pass, passes)` for as many rows as a kernel takes, evenly.
    template <class Each>
    static void in_passes(const Matrix &matrix, int rows, int group, Each each) {
        int begin = group * GROUP_ROWS, end = std::min(rows, begin + GROUP_ROWS);
        int at_once = rows_at_once(matrix.format), passes = (end - begin + at_once - 1) / at_once;
        for (int pass = 0; pass < passes; pass++) {
            int from = begin + (end - begin) * pass / passes;
            each(from, begin + (end - begin) * (pass + 1) / passes - from, pass, passes);
        }
    }

    // With few rows a product waits for memory anyway and the hardware prefetches best.
    Upcoming upcoming(const Matrix &matrix, int rows, int tile) const {
        if (rows < FETCH_ROWS || tile >= matrix.tiles) return {};
        return {matrix.tile(tile), FETCH_LINES};
    }

    // Calls `each(row, column, 48 results of that row)` for an item of a product, bias added.
    template <class Each>
    void products(const Matrix &matrix, const Operand &operand, int rows, int item, Each each) {
        int tile = item % matrix.tiles;
        Upcoming next = upcoming(matrix, rows, tile + model.pool.size());
        alignas(64) float out[ROWS * TILE];
        in_passes(matrix, rows, item / matrix.tiles, [&](int first, int count, int pass, int passes) {
            multiply(matrix, operand, first, count, tile, next.share(pass, passes), out);
            for (int r = 0; r < count; r++) {
                add_bias(matrix, tile, out + r * TILE);
                each(first + r, tile * TILE, out + r * TILE);
            }
        });
    }

    static void add_bias(const Matrix &matrix, int tile, float *out) {
        if (!matrix.bias.empty()) add<false>(matrix.bias.data() + tile * TILE, TILE, out);
    }

    void multiply_qkv(const Layer &layer, int item) {
        products(layer.qkv, space.normal, batch.token_count, item,
                 [&](int row, int column, const float *out) {
                     for (int i = 0; i < TILE; i += LANES) {
                         __m512 value = _mm512_load_ps(out + i);
                         _mm512_storeu_ps(qkv(row) + column + i,
                                          rounds ? rounded<true>(value) : value);
                     }
                 });
    }

    void multiply_into_hidden(const Matrix &matrix, const Operand &operand, int item) {
        products(matrix, operand, batch.token_count, item,
                 [&](int row, int column, const float *out) {
                     (rounds ? add<true> : add<false>)(out, TILE, hidden(row) + column);
                 });
    }

    void multiply_gate_up(const Layer &layer, int item) {
        const Matrix &matrix = layer.gate_up;
        int pairs = matrix.tiles / 2, pair = item % pairs, column = pair * TILE;
        alignas(64) float gate[ROWS * TILE], up[ROWS * TILE];
        int rows = batch.token_count, tile = 2 * pair, later = tile + 2 * model.pool.size();
        Upcoming next = upcoming(matrix, rows, later), next_up = upcoming(matrix, rows, later + 1);
        in_passes(matrix, rows, item / pairs, [&](int first, int count, int pass, int passes) {
            multiply(matrix, space.normal, first, count, tile, next.share(pass, passes), gate);
            multiply(matrix, space.normal, first, count, tile + 1, next_up.share(pass, passes), up);
            for (int r = 0; r < count; r++) {
                float *g = gate + r * TILE, *u = up + r * TILE;
                add_bias(matrix, tile, g);
                add_bias(matrix, tile + 1, u);
                (rounds ? gated<true> : gated<false>)(g, u, TILE, g);
                if (space.ffn.elementwise()) {
                    space.ffn.put_columns(first + r, column, std::min(TILE, shape.ffn - column), g);
                } else {
                    memcpy(gated_row(first + r) + column, g, TILE * sizeof(float));
                }
            }
        });
    }

    void multiply_head(int item) {
        products(model.head, space.last, batch.output_count, item,
                 [&](int row, int column, const float *out) {
                     float *logits = batch.logits + static_cast<size_t>(row) * shape.vocab + column;
                     for (int i = 0; i < TILE; i += LANES) {
                         __mmask16 mask = lanes_below(shape.vocab - column - i);
                         _mm512_mask_storeu_ps(logits + i, mask, _mm512_load_ps(out + i));
                     }
                 });
    }

    // ---- attention

    void cut_into_blocks() {
        ancestors.assign(batch.ancestors, batch.ancestors + batch.token_count);
        for (int r = 0; r < batch.row_count; r++) {
            int first = batch.row_starts[r], count = batch.row_starts[r + 1] - first;
            bool masked = false;
            for (int i = 0; i < count; i++) {
                int64_t &mask = ancestors[first + i];
                if (count > 63) continue;
                int64_t causal = static_cast<int64_t>((uint64_t{2} << i) - 1);
                if (mask == -1) mask = causal;
                masked |= mask != causal;
            }
            Row row{batch.block_tables + static_cast<size_t>(r) * batch.table_width,
                    batch.block_size, batch.kv_lengths[r] - count};
            for (int begin = 0; begin < count; begin += attention.tokens_per_block()) {
                int end = std::min(count, begin + attention.tokens_per_block());
                blocks.push_back({row, begin, end, first,
                                  masked ? ancestors.data() + first + begin : nullptr});
            }
        }
    }

    void cut_into_splits() {
        int lanes = static_cast<int>(blocks.size()) * shape.kv_heads;
        if (lanes >= 4 * model.pool.size()) return;
        size_t rows = 0;
        for (int block = 0; block < static_cast<int>(blocks.size()); block++) {
            int count = tile_count(blocks[block]);
            int block_rows = (blocks[block].end - blocks[block].begin) * attention.group();
            for (int kv_head = 0; kv_head < shape.kv_heads; kv_head++) {
                for (int tile = 0; tile < count; tile++, rows += block_rows) {
                    splits.push_back({block, kv_head, tile, count, block * shape.kv_heads + kv_head,
                                      rows});
                }
            }
        }
        pending = std::vector<std::atomic<int>>(lanes);
        partial_rows = rows;
        size_t bytes = rows * (attention.padded() + 2) * sizeof(float);
        if (bytes > space.partial.bytes()) space.partial = Memory(bytes);
    }

    int open_attention() {
        if (splits.empty()) return static_cast<int>(blocks.size()) * shape.kv_heads;
        for (const Split &split : splits) pending[split.lane] = split.tiles;
        return static_cast<int>(splits.size());
    }

    Lane lane(int layer, int kv_head) const {
        size_t begin = (slot_index(layer, 0) * shape.kv_heads + kv_head) * shape.head_size;
        return {element(batch.keys, begin), element(batch.values, begin),
                static_cast<size_t>(shape.kv_heads) * shape.head_size};
    }

    void load(const Block &block, int kv_head, AttentionScratch &scratch) {
        const float *heads[QUERY_ROWS + 256];
        int rows = 0;
        for (int token = block.begin; token < block.end; token++) {
            for (int g = 0; g < attention.group(); g++) {
                int head = kv_head * attention.group() + g;
                heads[rows++] = qkv(block.first + token) + head * shape.head_size;
            }
        }
        load_queries(attention, heads, rows, scratch);
    }

    void attend(int layer, int item, AttentionScratch &scratch) {
        if (!splits.empty()) return attend_split(layer, splits[item], scratch);
        const Block &block = blocks[item / shape.kv_heads];
        int kv_head = item % shape.kv_heads, count = tile_count(block);
        int rows = (block.end - block.begin) * attention.group();
        load(block, kv_head, scratch);
        for (int tile = 0; tile < count; tile++) {
            attend_tile(attention, block, lane(layer, kv_head), tile, scratch);
            merge(attention, scratch.sum, scratch.tile, rows, tile == 0);
        }
        finish(block, kv_head, scratch.sum);
    }

    Partial partial_of(const Split &split, int tile, int rows) {
        size_t before = split.rows_before + (tile - split.tile) * static_cast<ptrdiff_t>(rows);
        float *outputs = space.partial.as<float>();
        float *statistics = outputs + partial_rows * attention.padded();
        return {outputs + before * attention.padded(), statistics + before,
                statistics + partial_rows + before};
    }

    void attend_split(int layer, const Split &split, AttentionScratch &scratch) {
        const Block &block = blocks[split.block];
        int rows = (block.end - block.begin) * attention.group();
        load(block, split.kv_head, scratch);
        attend_tile(attention, block, lane(layer, split.kv_head), split.tile, scratch);
        // A copy, so that merging happens in one order whoever comes last.
        merge(attention, partial_of(split, split.tile, rows), scratch.tile, rows, true);
        if (pending[split.lane].fetch_sub(1) > 1) return;
        Partial sum = partial_of(split, 0, rows);
        for (int tile = 1; tile < split.tiles; tile++) {
            merge(attention, sum, partial_of(split, tile, rows), rows, false);
        }
        finish(block, split.kv_head, sum);
    }

    void finish(const Block &block, int kv_head, const Partial &sum) {
        int row = 0;
        for (int token = block.begin; token < block.end; token++) {
            for (int g = 0; g < attention.group(); g++, row++) {
                int column = (kv_head * attention.group() + g) * shape.head_size;
                float *out = sum.output + static_cast<size_t>(row) * attention.padded();
                __m512 total = _mm512_set1_ps(sum.total[row]);
                for (int i = 0; i < attention.padded(); i += LANES) {
                    __m512 value = _mm512_div_ps(_mm512_load_ps(out + i), total);
                    _mm512_store_ps(out + i, rounds ? rounded<true>(value) : value);
                }
                int at = block.first + token;
                if (space.attention.elementwise()) {
                    space.attention.put_columns(at, column, shape.head_size, out);
                } else {
                    memcpy(attended(at) + column, out, shape.head_size * sizeof(float));
                }
            }
        }
    }
};

}  // namespace

void Model::forward(const Batch &batch) {
    reserve(batch.token_count, batch.output_count);
    Forward job(*this, batch);
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
