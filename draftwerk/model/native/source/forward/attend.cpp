// The attention stage: the batch cut into blocks of query rows, and the blocks into items.
#include "forward/forward.h"
#include "forward/rows.h"

void Forward::spell_out_ancestors() {
    ancestors.assign(batch.ancestors, batch.ancestors + batch.token_count);
    for (int r = 0; r < batch.row_count; r++) {
        int first = batch.row_starts[r], count = batch.row_starts[r + 1] - first;
        for (int i = 0; count <= NODES_MAX && i < count; i++) {
            if (ancestors[first + i] != -1) continue;
            ancestors[first + i] = static_cast<int64_t>((uint64_t{2} << i) - 1);
        }
    }
}

void Forward::cut(std::vector<Cut> &cuts, bool only_outputs) {
    for (size_t index = 0; index < cuts.size(); index++) {
        cut_into_blocks(cuts[index], model.views[index], only_outputs);
        cut_into_splits(cuts[index], model.views[index].shape);
    }
}

// Tokens in a block of a row with so many. A row of several blocks has as many as all threads take in
// their last turn, unless they would be less than half as large as they may be: else a thread attends
// to the last one alone.
static int block_tokens(const AttentionShape &attention, int count, int threads) {
    const int most = attention.tokens_per_block(), least = (most + 1) / 2;
    if (count <= most) return most;
    auto parts = [](int all, int each) { return (all + each - 1) / each; };
    const int turns = parts(parts(count, most), threads);
    return parts(count, std::min(turns * threads, parts(count, least)));
}

void Forward::cut_into_blocks(Cut &cut, const View &view, bool only_outputs) {
    const int window = view.of.window;
    const bool apart = window && batch.window_tables;
    const int32_t *tables = apart ? batch.window_tables : batch.block_tables;
    auto wanted = [&](int token) { return !only_outputs || numbers[token] >= 0; };
    for (int r = 0; r < batch.row_count; r++) {
        int first = batch.row_starts[r], count = batch.row_starts[r + 1] - first;
        bool masked = false;
        for (int i = 0; count <= NODES_MAX && i < count; i++) {
            masked |= ancestors[first + i] != static_cast<int64_t>((uint64_t{2} << i) - 1);
        }
        Row row{tables + static_cast<size_t>(r) * batch.table_width,
                batch.block_size, batch.kv_lengths[r] - count};
        const int each = block_tokens(view.shape, count, model.pool.size());
        for (int begin = 0, end; begin < count; begin = end) {
            end = begin + 1;
            if (!wanted(first + begin)) continue;
            int most = std::min(count, begin + each);
            while (end < most && wanted(first + end)) end++;
            cut.blocks.push_back({row, begin, end, first,
                                  masked ? ancestors.data() + first + begin : nullptr,
                                  batch.seen ? batch.seen + first + begin : nullptr, window,
                                  window ? shape.kept_tiles : 0,
                                  window && (shape.sees_all || batch.both_ways)
                                      ? batch.positions + first + begin
                                      : nullptr});
        }
    }
}

// Whether a tile of two blocks is the same slots: then it is gathered once for both.
static bool share(const Block &one, const Block &other, int tile) {
    int size = one.row.block_size, end = (tile + 1) * SPAN;
    if (end > one.row.prefix || end > other.row.prefix) return false;
    int first = tile * SPAN / size, last = (end + size - 1) / size;
    return std::equal(one.row.blocks + first, one.row.blocks + last, other.row.blocks + first);
}

// Whether an item is all heads of a tile, whose positions lie side by side: what few tokens wait for
// is memory. With very few query heads reading in order is about 1.5 times as fast, so that threads
// may even be left with unequal shares.
bool Forward::takes_whole_tiles(const AttentionShape &attention, int positions) const {
    const int threads = model.pool.size(), kv_heads = attention.kv_heads;
    if (batch.token_count > attention.tokens_per_block()) return false;
    if (positions > 2 * threads * SPAN) return true;
    auto turns = [&](int items) { return (items + threads - 1) / threads; };
    const int full = positions / SPAN;
    return batch.token_count * attention.group() <= STREAMED_ROWS &&
           2 * turns(full) * kv_heads < 3 * turns(full * kv_heads);
}

// Puts the blocks with the most work first, so that small ones fill what is left of the threads' time.
static void sort_by_work(std::vector<Block> &blocks) {
    auto work = [](const Block &block) { return block.tiles() * (block.end - block.begin); };
    std::stable_sort(blocks.begin(), blocks.end(), [&](const Block &one, const Block &other) {
        return work(one) > work(other);
    });
}

void Forward::cut_into_splits(Cut &cut, const AttentionShape &attention) {
    std::vector<Block> &blocks = cut.blocks;
    int lanes = static_cast<int>(blocks.size()) * attention.kv_heads;
    bool few = batch.token_count <= SHARING_TOKENS;
    int shared_tiles = 0;
    for (size_t block = 1; few && block < blocks.size(); block++) {
        while (share(blocks[block - 1], blocks[block], shared_tiles)) shared_tiles++;
    }
    int longest = 0, all = 0, positions = 0;
    int last_tile = 0;
    for (const Block &block : blocks) {
        all += block.tiles();
        int unseen = tile_count(block) - block.tiles();
        positions = std::max(positions, block.length_max() - unseen * SPAN);
        longest = std::max(longest, block.tiles());
        last_tile = std::max(last_tile, tile_count(block));
    }
    // Threads share whole blocks out among them, unless one would be left with most of the work.
    bool even = longest * model.pool.size() <= all;
    if (even && shared_tiles == 0 && blocks.size() > 1) return sort_by_work(blocks);
    size_t rows = 0;
    for (const Block &block : blocks) {
        int count = block.tiles();
        for (int kv_head = 0; kv_head < attention.kv_heads; kv_head++) {
            cut.rows_before.push_back(rows);
            rows += static_cast<size_t>(count) * (block.end - block.begin) * attention.group();
        }
    }
    const int each = takes_whole_tiles(attention, positions) ? attention.kv_heads : 1;
    for (int kv_head = 0; kv_head < attention.kv_heads; kv_head += each) {
        for (int tile = 0; tile < last_tile; tile++) {
            for (int first = 0, last; first < static_cast<int>(blocks.size()); first = last) {
                last = first + 1;
                if (!blocks[first].has_tile(tile)) continue;
                while (few && last < static_cast<int>(blocks.size()) &&
                       blocks[last].has_tile(tile) &&
                       share(blocks[first], blocks[last], tile)) last++;
                cut.splits.push_back({first, last, {kv_head, each, tile}});
            }
        }
    }
    cut.pending = std::vector<std::atomic<int>>(lanes);
    cut.partial_rows = rows;
    size_t bytes = rows * (attention.padded() + 2) * sizeof(float);
    if (bytes > space.partial.bytes()) space.partial = Memory(bytes);
}

// Keeps for later how the keys of some texts are best kept.
void Forward::learn_forms(Layer &layer, const AttentionShape &attention) {
    const int size = attention.head_size, group = attention.group();
    const auto stride = static_cast<size_t>(qkv(1) - qkv(0));
    layer.learnt = layer.forms;
    for (int head = 0; head < attention.kv_heads; head++) {
        const float *queries = qkv(0) + head * group * size;
        const float *keys = qkv(0) + (attention.heads + head) * size;
        const float *values = keys + attention.kv_heads * size;
        attention.kv->learn_form(
            {queries, keys, values, stride, batch.row_starts, batch.row_count, group, size},
            &layer.learnt[head * attention.kv->form_size(size)]);
    }
}

int Forward::open_attention(int layer) {
    if (model.learns && model.layers[layer].stores()) {
        learn_forms(model.layers[layer], model.attention(layer));
    }
    Cut &cut = cut_of(layer);
    if (cut.splits.empty()) return static_cast<int>(cut.blocks.size());
    for (size_t lane = 0; lane < cut.pending.size(); lane++) {
        cut.pending[lane] = cut.blocks[lane / model.attention(layer).kv_heads].tiles();
    }
    return static_cast<int>(cut.splits.size());
}

Lane Forward::lane(int layer, int kv_head) const {
    return {at_head(keys_of(layer), layer, 0, kv_head), at_head(values_of(layer), layer, 0, kv_head),
            slot_bytes(layer), model.layers[layer].form(model.attention(layer), kv_head)};
}

// What was rotated by a token's position, at the place that it has behind the tiles that are kept
// and its window (StreamingLLM, Xiao et al., arXiv 2309.17453).
const float *Forward::turned(int token, int size, const float *head, float *to) {
    memcpy(to, head, size * sizeof(float));
    rotate<false>(to, turn_cosine(token), turn_sine(token), shape.rotary_pairs[0]);
    return to;
}

void Forward::load_heads(int layer, const Block &block, int kv_head, int tile,
                         AttentionScratch &scratch) {
    const AttentionShape &attention = model.attention(layer);
    const int size = attention.head_size;
    const float *heads[QUERY_ROWS + 256];
    int rows = 0;
    for (int token = block.begin; token < block.end; token++) {
        for (int g = 0; g < attention.group(); g++, rows++) {
            int head = kv_head * attention.group() + g, at = block.first + token;
            heads[rows] = qkv(at) + head * size;
            if (tile >= block.kept) continue;
            heads[rows] = turned(at, size, heads[rows], scratch.turned + rows * attention.padded());
        }
    }
    load_queries(attention, heads, rows, model.layers[layer].form(attention, kv_head), scratch);
}

void Forward::look_ahead(int layer, const Block &block, const Part &part, Ahead &ahead) const {
    const AttentionShape &attention = model.attention(layer);
    const Lane first = lane(layer, part.kv_head);
    int written = block.seen ? block.length_max() : block.row.prefix + block.end;
    int begin = part.tile * SPAN, count = std::clamp(written - begin, 0, SPAN);
    int64_t offsets[SPAN];
    block.row.slots(begin, count, static_cast<int64_t>(first.stride), offsets);
    for (int i = 0; i < count; i++) {
        ahead.rows[i] = static_cast<const uint8_t *>(first.keys) + offsets[i];
        ahead.rows[count + i] = static_cast<const uint8_t *>(first.values) + offsets[i];
    }
    ahead.count = 2 * count, ahead.row = ahead.byte = 0;
    ahead.bytes = static_cast<int>(part.kv_heads * attention.head_bytes());
    int times = part.kv_heads * fetches_per_head(attention);
    ahead.pace = (ahead.count * ((ahead.bytes + 63) / 64) + times - 1) / times;
}

// Gathering one head after another waits for every line, for no prefetcher expects the gaps. Going
// through a tile's positions once, all heads of each, is a stream: read one word of each line.
static void read_now(const Ahead &ahead) {
    uint64_t words = 0;
    for (int row = 0; row < ahead.count; row++) {
        for (int byte = 0; byte < ahead.bytes; byte += 64) {
            words += *reinterpret_cast<const volatile uint8_t *>(ahead.rows[row] + byte);
        }
    }
    asm volatile("" ::"r"(words));
}

void Forward::attend(int layer, int item, AttentionScratch &scratch) {
    const Cut &cut = cut_of(layer);
    if (!cut.splits.empty()) return attend_split(layer, item, scratch);
    const AttentionShape &attention = model.attention(layer);
    const Block &block = cut.blocks[item];
    int count = block.tiles(), rows = (block.end - block.begin) * attention.group();
    const size_t later = item + model.pool.size();
    for (int index = 0; index < count; index++) {
        const int tile = block.tile_at(index);
        if (index == 0 && item < model.pool.size()) {
            look_ahead(layer, block, {0, attention.kv_heads, tile}, scratch.ahead);
            read_now(scratch.ahead);
        }
        scratch.ahead.count = 0;
        if (index + 1 < count) {
            look_ahead(layer, block, {0, attention.kv_heads, block.tile_at(index + 1)},
                       scratch.ahead);
        } else if (later < cut.blocks.size()) {
            const Block &next = cut.blocks[later];
            look_ahead(layer, next, {0, attention.kv_heads, next.tile_at(0)}, scratch.ahead);
        }
        // Behind the tiles that are kept queries are rotated otherwise.
        const bool was_kept = index > 0 && block.tile_at(index - 1) < block.kept;
        const bool turns = index == 0 || (was_kept && tile >= block.kept);
        for (int kv_head = 0; kv_head < attention.kv_heads; kv_head++) {
            scratch.select(kv_head);
            if (turns) load_heads(layer, block, kv_head, tile, scratch);
            scratch.gathered = 0;
            attend_tile(attention, block, lane(layer, kv_head), tile, scratch);
            merge(attention, scratch.sums[kv_head], scratch.tile, rows, index == 0);
        }
    }
    for (int kv_head = 0; kv_head < attention.kv_heads; kv_head++) {
        finish(layer, block, kv_head, scratch.sums[kv_head]);
    }
}

Partial Forward::partial_of(const Cut &cut, int padded, int lane, int tile, int rows) {
    size_t before = cut.rows_before[lane] + static_cast<size_t>(tile) * rows;
    float *outputs = space.partial.as<float>();
    float *statistics = outputs + cut.partial_rows * padded;
    return {outputs + before * padded, statistics + before,
            statistics + cut.partial_rows + before};
}

void Forward::attend_split(int layer, int item, AttentionScratch &scratch) {
    Cut &cut = cut_of(layer);
    const Split &split = cut.splits[item];
    if (split.part.kv_heads > 1 && item < model.pool.size()) {
        look_ahead(layer, cut.blocks[split.first], split.part, scratch.ahead);
        read_now(scratch.ahead);
    }
    scratch.ahead.count = 0;
    const size_t next = item + model.pool.size();
    if (next < cut.splits.size()) {
        const Split &later = cut.splits[next];
        look_ahead(layer, cut.blocks[later.first], later.part, scratch.ahead);
    }
    const Part &part = split.part;
    for (int head = part.kv_head; head < part.kv_head + part.kv_heads; head++) {
        attend_heads(cut, layer, split, head, scratch);
    }
}

void Forward::attend_heads(Cut &cut, int layer, const Split &split, int kv_head,
                           AttentionScratch &scratch) {
    const AttentionShape &attention = model.attention(layer);
    const int tile = split.part.tile, padded = attention.padded();
    scratch.gathered = 0;
    scratch.select(kv_head);
    for (int index = split.first; index < split.last; index++) {
        const Block &block = cut.blocks[index];
        int rows = (block.end - block.begin) * attention.group();
        int lane_index = index * attention.kv_heads + kv_head;
        load_heads(layer, block, kv_head, tile, scratch);
        attend_tile(attention, block, lane(layer, kv_head), tile, scratch);
        // A copy, so that merging happens in one order whichever thread is last.
        Partial own = partial_of(cut, padded, lane_index, block.index_of(tile), rows);
        merge(attention, own, scratch.tile, rows, true);
        if (cut.pending[lane_index].fetch_sub(1) > 1) continue;
        Partial sum = partial_of(cut, padded, lane_index, 0, rows);
        for (int other = 1, count = block.tiles(); other < count; other++) {
            merge(attention, sum, partial_of(cut, padded, lane_index, other, rows), rows, false);
        }
        finish(layer, block, kv_head, sum);
    }
}

// What weighed values are divided by. A sink is one more score, which has no value: it is counted
// here, once for all tiles.
float Forward::total_of(int layer, int head, const Partial &sum, int row) const {
    const std::vector<float> &sinks = model.layers[layer].sinks;
    if (sinks.empty()) return sum.total[row];
    return sum.total[row] + exponential(sinks[head] - sum.largest[row]);
}

// Multiplies what a head attends to by sigmoids.
void Forward::gate(const AttentionShape &attention, int token, int column, float *out) {
    const int size = attention.head_size;
    const int first = (attention.heads + 2 * attention.kv_heads) * size + column;
    for (int i = 0; i < size; i += LANES) {
        const int left = size - i;
        Floats z = load_first(qkv(token) + first + i, left);
        Floats share = broadcast(1.0f) / (exponential(broadcast(0.0f) - z) + broadcast(1.0f));
        if (in_bf16) share = round_to_bf16(share);
        Floats y = load_first(out + i, left) * share;
        store_first(out + i, in_bf16 ? round_to_bf16(y) : y, left);
    }
}

void Forward::finish(int layer, const Block &block, int kv_head, const Partial &sum) {
    const AttentionShape &attention = model.attention(layer);
    const int size = attention.head_size;
    int row = 0;
    for (int token = block.begin; token < block.end; token++) {
        for (int g = 0; g < attention.group(); g++, row++) {
            int head = model.shard.heads.first + kv_head * attention.group() + g;
            int column = head * size;
            float *out = sum.output + static_cast<size_t>(row) * attention.padded();
            attention.kv->turn_back(model.layers[layer].form(attention, kv_head), size, out);
            const Floats total = broadcast(total_of(layer, head, sum, row));
            for (int i = 0; i < attention.padded(); i += LANES) {
                Floats value = load(out + i) / total;
                store(out + i, in_bf16 ? round_to_bf16(value) : value);
            }
            if (shape.has_output_gate) gate(attention, block.first + token, column, out);
            int at = number_at(layer, block.first + token);
            if (goes_straight(space.attention)) {
                space.attention.put_columns(at, column, size, out);
            } else {
                memcpy(attended(at) + column, out, size * sizeof(float));
            }
        }
    }
}
