#include "attention/attention.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "attention/gather.h"
#include "simd/tile.h"

namespace {

constexpr int PRODUCT_ROWS = native::ATTENTION_ROWS;
constexpr float UNSEEN = -1e30f;        // a score whose exponential is 0 beside any other
// Columns at a time, in sixteens: of fewer rows more, so that there are enough chains of additions.
constexpr int width_of(int rows) {
    return native::ATTENTION_COLUMNS / LANES * (2 * rows <= PRODUCT_ROWS ? 2 : 1);
}

// Scores: out[r][j] = sum over steps of query[r][step] * keys[step][j], for COUNT rows and WIDTH
// times 16 positions; a step is a float of each, or a bf16 pair.
template <bool PAIRS, int COUNT, int WIDTH>
void score(const uint8_t *query, size_t query_stride, const uint8_t *keys, int steps, float *out,
           Ahead &ahead) {
    constexpr int COLUMNS = WIDTH * PARTS;
    Sums<COUNT, COLUMNS> sums = {};
    for (int step = 0; step < steps; step++, keys += COLUMNS_MAX * 4) {
        if (step % AHEAD_STEPS == 0) ahead.some();
        add_step<PAIRS, COUNT, COLUMNS>(sums, query, query_stride, step, [&](int j) {
            return keys + j * sizeof(native::Floats);
        });
    }
    store<COUNT, COLUMNS>(sums, out, COLUMNS_MAX);
}

// Outputs: out[r][j] = sum over positions of weights[r][position] * the values there, for COUNT
// rows and WIDTH times 16 columns. Values of bf16 come in pairs of columns, and positions are taken
// two by two, the second one first; weights that are bf16 too (TWICE) are pairs of positions.
template <bool PAIRS, bool TWICE, int COUNT, int WIDTH>
void weigh(const float *weights, const uint8_t *values, const int64_t *offsets, int positions,
           float *out, size_t out_stride, Ahead &ahead) {
    constexpr int COLUMNS = WIDTH * PARTS, INPUTS = PAIRS ? 2 : 1;
    constexpr int STEPS = TWICE ? native::HALVES : INPUTS;
    Sums<COUNT, COLUMNS> sums = {};
    for (int at = 0; at < positions; at += INPUTS) {
        if (at % (INPUTS * AHEAD_STEPS) == 0) ahead.some();
        repeat<STEPS>([&](auto later) {
            constexpr int STEP = STEPS - 1 - later;
            const uint8_t *words = values + offsets[at + STEP];
            auto row = [&](int r) {
                const float *of = weights + r * SPAN;
                if constexpr (TWICE) {
                    return native::broadcast_pair(
                        reinterpret_cast<const PairElement *>(of) + at, STEP);
                } else {
                    return native::broadcast(of[at + STEP]);
                }
            };
            add_products<COUNT, COLUMNS>(sums, row, [&](int j) {
                const size_t column = j / INPUTS * sizeof(native::Floats);
                if constexpr (TWICE) {
                    return native::crossed(words + column, values + offsets[at + 1] + column,
                                           j % 2);
                } else {
                    return PAIRS ? native::half_of_pairs(words + column, j % 2)
                                 : Words<false>::load(words + column, 0);
                }
            });
        });
    }
    if constexpr (PAIRS) {
        each_of<COUNT>([&](int r) INLINED {
            repeat<COLUMNS / 2>([&](auto j) {
                native::store_interleaved(out + r * out_stride + 2 * j * native::LANES,
                                          sums[r][2 * j], sums[r][2 * j + 1]);
            });
        });
    } else {
        store<COUNT, COLUMNS>(sums, out, out_stride);
    }
}

struct Products {
    decltype(&score<false, 1, 1>) score;
    decltype(&weigh<false, false, 1, 1>) weigh, weigh_twice;      // by floats, by bf16
};
constexpr int WIDTH_MAX = width_of(1);
using ByWidth = std::array<Products, WIDTH_MAX>;

template <bool PAIRS, int COUNT, int WIDTH>
constexpr Products products_of() {
    if constexpr (WIDTH > width_of(COUNT)) return {};
    else if constexpr (PAIRS && WIDTH * PARTS % 2) return {score<PAIRS, COUNT, WIDTH>, {}, {}};
    else return {score<PAIRS, COUNT, WIDTH>, weigh<PAIRS, false, COUNT, WIDTH>,
                 weigh<PAIRS, PAIRS && native::HALVES == 1, COUNT, WIDTH>};
}
template <bool PAIRS, int COUNT, int... WIDTH>
constexpr ByWidth products_by_width(std::integer_sequence<int, WIDTH...>) {
    return {products_of<PAIRS, COUNT, WIDTH + 1>()...};
}
template <bool PAIRS, int... COUNT>
constexpr auto products_by_rows(std::integer_sequence<int, COUNT...>) {
    constexpr auto widths = std::make_integer_sequence<int, WIDTH_MAX>();
    return std::array<ByWidth, PRODUCT_ROWS>{products_by_width<PAIRS, COUNT + 1>(widths)...};
}
constexpr auto COUNTS = std::make_integer_sequence<int, PRODUCT_ROWS>();
constexpr auto FP32 = products_by_rows<false>(COUNTS), BF16 = products_by_rows<true>(COUNTS);

// Calls `each(products, first row, first sixteen columns)` until all rows and columns are done.
template <class Each>
void in_products(bool fp32, int rows, int width, Each each) {
    for (int row = 0; row < rows; row += PRODUCT_ROWS) {
        int count = std::min(PRODUCT_ROWS, rows - row), most = width_of(count);
        for (int j = 0; j < width; j += most) {
            each((fp32 ? FP32 : BF16)[count - 1][std::min(most, width - j) - 1], row, j);
        }
    }
}

// The slots of one lane that some rows see of a tile, each a column.
struct Tile {
    const AttentionShape &shape;
    const Lane &lane;
    AttentionScratch &scratch;
    int64_t *offsets;             // bytes from the lane's base, [COLUMNS_MAX]
    int count;

    // Of queries.
    size_t row_bytes() const {
        return shape.padded() * (shape.in_fp32() ? sizeof(float) : sizeof(PairElement));
    }
    bool has_scales() const { return shape.kv->has_scales; }
    // Whether weights are bf16 as values are.
    bool weighs_twice() const { return !shape.in_fp32() && !has_scales(); }
    int words_of(int elements) const { return shape.in_fp32() ? elements : elements / 2; }

    void gather(int rows) const {
        size_t bytes = count * sizeof(int64_t);
        if (scratch.gathered == count && scratch.gathered_lane == lane.keys &&
            memcmp(scratch.gathered_offsets, offsets, bytes) == 0) return;
        scratch.gathered = count, scratch.gathered_lane = lane.keys;
        memcpy(scratch.gathered_offsets, offsets, bytes);
        // Positions that only fill up a vector repeat a real one: finite, and never weighed.
        for (int i = count; i < round_up(count, LANES); i++) offsets[i] = offsets[count - 1];
        int words = words_of(shape.head_size);
        Widened to{scratch.widened, scratch.value_offsets, scratch.key_scales};
        const uint8_t *keys = shape.kv->keys(lane, offsets, count, shape.head_size, to);
        gather_keys(keys, to.offsets, count, words, scratch.keys, scratch.ahead);
        to.scales = scratch.value_scales;
        scratch.values = shape.kv->values(lane, offsets, count, shape.head_size, to);
        // Heads that lie apart may be in each other's way in the L1 cache, if read more than once.
        if (rows > PRODUCT_ROWS || shape.head_size < shape.padded()) copy_values(words);
    }

    void copy_values(int words) const {
        int padded = words_of(shape.padded()), copies = round_up(count, 2);
        gather_values(scratch.values, scratch.value_offsets, copies, words, padded, scratch.copied,
                      scratch.ahead);
        scratch.values = scratch.copied;
        for (int i = 0; i < copies; i++) scratch.value_offsets[i] = i * int64_t{4} * padded;
    }

    // Scores c tanh(score scale / c), which have that scale then.
    void cap(float *scores, int seen) const {
        const Floats inside = broadcast(shape.scale / shape.softcap);
        const Floats outside = broadcast(shape.softcap);
        for (int i = 0; i < seen; i += LANES) {
            store(scores + i, tanh(load(scores + i) * inside) * outside);
        }
    }

    // One row's scores, scaled; those before `hidden` are not seen. Apart from what follows, so that
    // a row's maximum is looked for while others' are.
    void scale_scores(int row, int hidden, int seen) const {
        float *scores = scratch.scores + row * COLUMNS_MAX;
        if (shape.softcap > 0) cap(scores, seen);
        if (hidden) std::fill(scores, scores + hidden, UNSEEN);
        const Floats scale = broadcast(shape.softcap > 0 ? 1.0f : shape.scale);
        Floats most = broadcast(-INFINITY);
        for (int i = 0; i < seen; i += LANES) {
            Floats score = load(scores + i) * scale;
            store(scores + i, score);
            const int left = seen - i;
            most = max(most, left < LANES ? keep_first(score, left, most) : score);
        }
        scratch.tile.largest[row] = reduce_max(most);
    }

    // Scaled scores of one row to probabilities (unnormalised): those from `seen` on are zero.
    // Values are weighed by them times `scales`, if there are any.
    void exponentiate(int row, int seen, int positions, const float *scales) const {
        const float *scores = scratch.scores + row * COLUMNS_MAX;
        const Floats largest = broadcast(scratch.tile.largest[row]), zero = broadcast(0.0f);
        float *to = scratch.probabilities + row * SPAN;
        const bool in_fp32 = shape.in_fp32(), twice = weighs_twice();
        Floats total = zero;
        for (int i = 0; i < positions; i += LANES) {
            Floats p = without_tiny(exponential(load(scores + i) - largest));
            if (seen - i < LANES) p = keep_first(p, seen - i, zero);
            if (!in_fp32) p = round_to_bf16(p);
            total = total + p;
            if (twice) store_pairs(reinterpret_cast<PairElement *>(to) + i, p, LANES);
            else store(to + i, scales ? p * load(scales + i) : p);
        }
        scratch.tile.total[row] = reduce_add(total);
    }

    void score_rows(int first, int last) const {
        in_products(shape.in_fp32(), last - first, round_up(count, LANES) / LANES,
                    [&](const Products &products, int row, int j) {
                        row += first;
                        products.score(scratch.query + row * row_bytes(), row_bytes(),
                                       scratch.keys + 64 * j, words_of(shape.head_size),
                                       scratch.scores + row * COLUMNS_MAX + j * LANES,
                                       scratch.ahead);
                    });
        for (int row = first; row < last && has_scales(); row++) {
            float *scores = scratch.scores + row * COLUMNS_MAX;
            const Floats positive = broadcast(scratch.taken[row].positive);
            const Floats negative = broadcast(scratch.taken[row].negative);
            const Floats zero = broadcast(0.0f);
            for (int i = 0; i < count; i += LANES) {
                const Floats scale = load(scratch.key_scales + i);
                const Floats more = select(less(scale, zero), negative, positive);
                store(scores + i, fma(load(scores + i), max(scale, zero - scale), more));
            }
        }
    }

    void weigh_rows(int first, int last, const int64_t *value_offsets, int positions) const {
        in_products(shape.in_fp32(), last - first, shape.padded() / LANES,
                    [&](const Products &products, int row, int j) {
                        row += first;
                        auto weigh = weighs_twice() ? products.weigh_twice : products.weigh;
                        weigh(scratch.probabilities + row * SPAN,
                              scratch.values + words_of(j * LANES) * 4, value_offsets, positions,
                              scratch.tile.output + row * shape.padded() + j * LANES,
                              shape.padded(), scratch.ahead);
                    });
    }

    // Rows first .. last; row r sees the columns hidden[r] .. seen[r].
    void attend(int first, int last, const int *hidden, const int *seen) const {
        gather(last - first);
        score_rows(first, last);
        const float *scales = has_scales() ? scratch.value_scales : nullptr;
        for (int row = first; row < last; row++) scale_scores(row, hidden[row], seen[row]);
        for (int row = first; row < last; row++) exponentiate(row, seen[row], count, scales);
        weigh_rows(first, last, scratch.value_offsets, count);
    }

    // Rows first .. last, gathered and scored: each position they see is one of the columns, those
    // before `hidden` left out.
    void attend_some(int first, int last, const int *columns, int hidden, int positions) const {
        int64_t value_offsets[SPAN];
        float scales[SPAN];
        for (int i = 0; i < round_up(positions, LANES); i++) {
            const int column = columns[i < positions ? i : 0];
            value_offsets[i] = scratch.value_offsets[column];
            scales[i] = scratch.value_scales[column];
        }
        for (int row = first; row < last; row++) {
            float *scores = scratch.scores + row * COLUMNS_MAX;
            for (int i = 0; i < positions; i++) scores[i] = scores[columns[i]];
            scale_scores(row, hidden, positions);
        }
        for (int row = first; row < last; row++) {
            exponentiate(row, positions, positions, has_scales() ? scales : nullptr);
        }
        weigh_rows(first, last, value_offsets, positions);
    }
};

// A tile where the tokens of a tree see different slots at one logical position: those before the
// tree are first, the others by slot.
void attend_to_nodes(const AttentionShape &shape, const Block &block, const Lane &lane, int start,
                     int first_token, const int *hidden, const int *seen,
                     AttentionScratch &scratch) {
    const int group = shape.group(), tokens = block.end - block.begin, prefix = block.row.prefix;
    const int shared = std::max(0, prefix - start);
    const auto bytes = static_cast<int64_t>(lane.stride);
    int64_t offsets[COLUMNS_MAX];
    block.row.slots(start, shared, bytes, offsets);
    uint64_t nodes = 0;
    for (int token = first_token; token < tokens; token++) {
        nodes |= static_cast<uint64_t>(block.ancestors[token]);
    }
    int column_of[NODES_MAX + 1], count = shared;
    for (uint64_t left = nodes; left; left &= left - 1) {
        int node = __builtin_ctzll(left);
        column_of[node] = count;
        offsets[count++] = block.row.slot(prefix + node) * bytes;
    }
    Tile tile{shape, lane, scratch, offsets, count};
    tile.gather(0);
    tile.score_rows(first_token * group, tokens * group);
    int columns[SPAN];
    for (int i = 0; i < shared; i++) columns[i] = i;
    for (int token = first_token; token < tokens; token++) {
        // Of its ancestors, those before the tile are another tile's.
        int skipped = std::max(0, start - prefix), positions = seen[token * group], at = shared;
        auto left = static_cast<uint64_t>(block.ancestors[token]);
        for (; left && at < positions; left &= left - 1) {
            if (skipped-- <= 0) columns[at++] = column_of[__builtin_ctzll(left)];
        }
        if (positions > 0) {
            tile.attend_some(token * group, (token + 1) * group, columns, hidden[token * group],
                             positions);
        }
    }
}

}  // namespace

int Block::length(int token) const {
    if (!ancestors) {
        const int whole = seen ? seen[token - begin] : row.prefix + token + 1;
        return places ? std::min(whole, places[token - begin] + window) : whole;
    }
    return row.prefix + __builtin_popcountll(static_cast<uint64_t>(ancestors[token - begin]));
}

int Block::length_max() const {
    int longest = 0;
    for (int token = begin; token < end; token++) longest = std::max(longest, length(token));
    return longest;
}

int Block::window_tile() const {
    if (!window) return 0;
    int least = first_seen(begin);
    for (int token = begin + 1; token < end; token++) least = std::min(least, first_seen(token));
    return least / SPAN;
}

int Block::tiles() const { return head() + tile_count(*this) - window_tile(); }

bool Block::has_tile(int tile) const {
    return tile < head() || (tile >= window_tile() && tile < tile_count(*this));
}

int tile_count(const Block &block) { return (block.length_max() + SPAN - 1) / SPAN; }

int fetches_per_head(const AttentionShape &shape) {
    auto up = [](int a, int b) { return (a + b - 1) / b; };
    const int columns = width_of(shape.group()) * LANES;
    const int words = shape.in_fp32() ? shape.head_size : shape.head_size / 2;
    const int positions = shape.in_fp32() ? SPAN : SPAN / 2;    // or pairs of them
    int keys = SPAN / LANES * up(words, LANES);
    int scores = up(SPAN, columns) * up(words, AHEAD_STEPS);
    return keys + scores + up(shape.padded(), columns) * up(positions, AHEAD_STEPS);
}

AttentionScratch::AttentionScratch(const AttentionShape &shape) : sums(shape.kv_heads) {
    const size_t padded = shape.padded();
    rows = std::max(shape.group(), QUERY_ROWS), row_bytes = padded * 4;
    size_t bytes = 0;
    std::vector<size_t> begins;
    auto reserve = [&](size_t size) {
        begins.push_back(bytes);
        bytes += (size + 63) / 64 * 64;
    };
    reserve(shape.kv_heads * rows * row_bytes);                           // queries
    reserve(rows * padded * 4);                                           // turned
    reserve(COLUMNS_MAX * padded * 4);                                    // keys
    reserve(COLUMNS_MAX * padded * 4);                                    // copied
    reserve(rows * SPAN * 4);                                             // probabilities
    reserve(rows * COLUMNS_MAX * 4);                                      // scores
    reserve(COLUMNS_MAX * static_cast<size_t>(shape.head_size) * sizeof(bf16) + 64);  // widened
    for (int i = 0; i < 2; i++) reserve(COLUMNS_MAX * sizeof(float));     // scales
    reserve(shape.kv_heads * rows * sizeof(Taken));                       // taken
    for (size_t i = 0; i <= sums.size(); i++) {                           // tile and sums
        reserve(rows * padded * 4), reserve(rows * 4), reserve(rows * 4);
    }
    memory = Memory(bytes);
    auto next = begins.begin();
    auto bytes_at = [&] { return memory.as<uint8_t>() + *next++; };
    auto floats_at = [&] { return reinterpret_cast<float *>(bytes_at()); };
    queries = bytes_at(), turned = floats_at(), keys = bytes_at(), copied = bytes_at(), probabilities = floats_at();
    scores = floats_at(), widened = bytes_at();
    key_scales = floats_at(), value_scales = floats_at();
    takens = reinterpret_cast<Taken *>(bytes_at());
    auto partial_at = [&] {
        float *output = floats_at(), *largest = floats_at();
        return Partial{output, largest, floats_at()};
    };
    tile = partial_at();
    for (Partial &sum : sums) sum = partial_at();
}

void load_queries(const AttentionShape &shape, const float *const *heads, int rows,
                  const float *form, AttentionScratch &scratch) {
    for (int row = 0; row < rows; row++) {
        const float *head = heads[row];
        if (shape.kv->has_scales) {
            float *turned = scratch.turned + row * shape.padded();
            scratch.taken[row] = shape.kv->turn_query(form, head, shape.head_size, turned);
            head = turned;
        }
        for (int i = 0; i < shape.padded(); i += LANES) {
            Floats value = without_tiny(load_first(head + i, shape.head_size - i));
            size_t at = static_cast<size_t>(row) * shape.padded() + i;
            if (shape.in_fp32()) {
                store(reinterpret_cast<float *>(scratch.query) + at, value);
            } else {
                store_pairs(reinterpret_cast<PairElement *>(scratch.query) + at, value, LANES);
            }
        }
    }
}

void attend_tile(const AttentionShape &shape, const Block &block, const Lane &lane, int tile,
                 AttentionScratch &scratch) {
    const int group = shape.group(), start = tile * SPAN;
    const int64_t bytes = static_cast<int64_t>(lane.stride);
    int64_t offsets[COLUMNS_MAX];
    int hidden[QUERY_ROWS + 256], seen[QUERY_ROWS + 256];
    int tokens = block.end - block.begin, longest = 0, first_seeing = tokens;
    for (int i = tokens - 1; i >= 0; i--) {
        int count = std::clamp(block.length(block.begin + i) - start, 0, SPAN);
        int from = std::clamp(block.first_seen(block.begin + i) - start, 0, SPAN);
        if (tile < block.kept) from = 0;
        if (from >= count) from = count = 0;
        longest = std::max(longest, count);
        if (count > 0) first_seeing = i;
        for (int g = 0; g < group; g++) {
            hidden[i * group + g] = from;
            seen[i * group + g] = count;
            if (count == 0) scratch.tile.total[i * group + g] = 0;
        }
    }
    if (longest == 0) return;
    if (!block.ancestors || start + SPAN <= block.row.prefix) {
        block.row.slots(start, longest, bytes, offsets);
        Tile{shape, lane, scratch, offsets, longest}.attend(first_seeing * group, tokens * group,
                                                            hidden, seen);
        return;
    }
    attend_to_nodes(shape, block, lane, start, first_seeing, hidden, seen, scratch);
}

void merge(const AttentionShape &shape, const Partial &sum, const Partial &tile, int rows,
           bool is_first) {
    for (int row = 0; row < rows; row++) {
        float *out = sum.output + row * shape.padded();
        const float *in = tile.output + row * shape.padded();
        if (is_first || sum.total[row] == 0) {
            memcpy(out, in, shape.padded() * sizeof(float));
            sum.largest[row] = tile.largest[row];
            sum.total[row] = tile.total[row];
            continue;
        }
        if (tile.total[row] == 0) continue;
        float largest = std::max(sum.largest[row], tile.largest[row]);
        float old_factor = exponential(sum.largest[row] - largest);
        float new_factor = exponential(tile.largest[row] - largest);
        for (int i = 0; i < shape.padded(); i += LANES) {
            Floats old_part = without_tiny(load(out + i) * broadcast(old_factor));
            Floats new_part = without_tiny(load(in + i) * broadcast(new_factor));
            store(out + i, old_part + new_part);
        }
        sum.total[row] = sum.total[row] * old_factor + tile.total[row] * new_factor;
        sum.largest[row] = largest;
    }
}
