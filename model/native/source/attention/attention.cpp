#include "attention/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "attention/gather.h"

namespace {

// out[r][j] = sum over steps of a[r][step] * b[step][j], for COUNT rows and WIDTH times 16 columns;
// a step is one float or one bf16 pair.
template <bool FP32, int COUNT, int WIDTH>
void product(const uint8_t *a, size_t a_stride, const uint8_t *b, size_t b_stride, int steps,
             float *out, size_t out_stride, Ahead &ahead) {
    constexpr int COLUMNS = WIDTH * PARTS;
    native::Floats sums[COUNT][COLUMNS] = {};
    for (int step = 0; step < steps; step++, b += b_stride) {
        if (step % AHEAD_STEPS == 0) ahead.some();
        if constexpr (FP32) {
            native::Floats w[COLUMNS];
            for (int j = 0; j < COLUMNS; j++) {
                w[j] = native::load(reinterpret_cast<const float *>(b) + j * native::LANES);
            }
            for (int r = 0; r < COUNT; r++) {
                auto row = reinterpret_cast<const float *>(a + r * a_stride);
                native::Floats x = native::broadcast(row[step]);
                for (int j = 0; j < COLUMNS; j++) sums[r][j] = native::fma(x, w[j], sums[r][j]);
            }
        } else {
#pragma GCC unroll 2
            for (int half = native::HALVES - 1; half >= 0; half--) {
                decltype(native::pair_weights(b, half)) w[COLUMNS];
                for (int j = 0; j < COLUMNS; j++) {
                    w[j] = native::pair_weights(b + j * sizeof(native::Floats), half);
                }
                for (int r = 0; r < COUNT; r++) {
                    auto row = reinterpret_cast<const PairElement *>(a + r * a_stride);
                    auto x = native::pair_operand(row + 2 * step, half);
                    for (int j = 0; j < COLUMNS; j++) {
                        sums[r][j] = native::add_products(sums[r][j], x, w[j]);
                    }
                }
            }
        }
    }
    for (int r = 0; r < COUNT; r++) {
        for (int j = 0; j < COLUMNS; j++) {
            native::store(out + r * out_stride + j * native::LANES, sums[r][j]);
        }
    }
}

using Product = void (*)(const uint8_t *, size_t, const uint8_t *, size_t, int, float *, size_t,
                         Ahead &);
constexpr int PRODUCT_ROWS = native::ATTENTION_ROWS;
constexpr int PRODUCT_WIDTH = native::ATTENTION_COLUMNS / LANES;
using ByWidth = std::array<Product, PRODUCT_WIDTH>;
using ByRows = std::array<ByWidth, PRODUCT_ROWS>;

template <bool FP32, int COUNT, int... WIDTH>
constexpr ByWidth products_by_width(std::integer_sequence<int, WIDTH...>) {
    return {product<FP32, COUNT, WIDTH + 1>...};
}
template <bool FP32, int... COUNT>
constexpr ByRows products_by_rows(std::integer_sequence<int, COUNT...>) {
    constexpr auto widths = std::make_integer_sequence<int, PRODUCT_WIDTH>();
    return {products_by_width<FP32, COUNT + 1>(widths)...};
}
constexpr auto COUNTS = std::make_integer_sequence<int, PRODUCT_ROWS>();
constexpr ByRows PRODUCTS[] = {products_by_rows<false>(COUNTS), products_by_rows<true>(COUNTS)};

void multiply_rows(bool fp32, const uint8_t *a, size_t a_stride, int rows, const uint8_t *b,
                   size_t b_stride, int width, int steps, float *out, size_t out_stride,
                   Ahead &ahead) {
    for (int row = 0; row < rows; row += PRODUCT_ROWS) {
        int count = std::min(PRODUCT_ROWS, rows - row);
        for (int j = 0; j < width; j += PRODUCT_WIDTH) {
            int wide = std::min(PRODUCT_WIDTH, width - j);
            PRODUCTS[fp32][count - 1][wide - 1](a + row * a_stride, a_stride, b + 64 * j, b_stride,
                                                steps, out + row * out_stride + j * LANES,
                                                out_stride, ahead);
        }
    }
}

// What one tile of one lane looks like to the rows that share it.
struct Tile {
    const AttentionShape &shape;
    const Lane &lane;
    AttentionScratch &scratch;
    int64_t *offsets;             // bytes from the lane's base, [SPAN]
    int count;

    size_t element() const { return shape.in_fp32() ? 4 : 2; }
    // Of queries and probabilities.
    size_t operand() const { return shape.in_fp32() ? sizeof(float) : sizeof(PairElement); }
    size_t row_bytes() const { return shape.padded() * operand(); }

    void gather() const {
        size_t bytes = count * sizeof(int64_t);
        if (scratch.gathered == count && scratch.gathered_lane == lane.keys &&
            memcmp(scratch.gathered_offsets, offsets, bytes) == 0) return;
        scratch.gathered = count, scratch.gathered_lane = lane.keys;
        memcpy(scratch.gathered_offsets, offsets, bytes);
        // Positions that only fill up a vector repeat a real one: finite, and never weighed.
        for (int i = count; i < round_up(count, LANES); i++) offsets[i] = offsets[count - 1];
        auto *keys = static_cast<const uint8_t *>(lane.keys);
        auto *values = static_cast<const uint8_t *>(lane.values);
        if (shape.kv == Format::int8) {
            int64_t widened[SPAN];
            widen_heads(keys, offsets, count, shape.head_size, widened, scratch.widened);
            arrange_keys(scratch.widened, widened);
            widen_heads(values, offsets, count, shape.head_size, widened, scratch.widened);
            arrange_values(scratch.widened, widened);
        } else {
            arrange_keys(keys, offsets);
            arrange_values(values, offsets);
        }
    }

    void arrange_keys(const uint8_t *base, const int64_t *positions) const {
        int words = shape.head_size * static_cast<int>(element()) / 4;
        gather_keys(base, positions, count, words, scratch.keys, scratch.ahead);
    }

    void arrange_values(const uint8_t *base, const int64_t *positions) const {
        (shape.in_fp32() ? gather_values_fp32 : gather_values_bf16)(
            base, positions, count, shape.head_size, shape.padded(), scratch.values, scratch.ahead);
    }

    // Scores of one row to probabilities (unnormalised), of which `seen` positions are not zero.
    void softmax(int row, int seen) const {
        float *scores = scratch.scores + row * SPAN;
        const Floats scale = broadcast(1.0f / std::sqrt(static_cast<float>(shape.head_size)));
        Floats most = broadcast(-INFINITY);
        for (int i = 0; i < seen; i += LANES) {
            Floats score = load(scores + i) * scale;
            store(scores + i, score);
            most = max(most, keep_first(score, seen - i, broadcast(-INFINITY)));
        }
        const float largest = reduce_max(most);
        const Floats zero = broadcast(0.0f);
        Floats total = zero;
        for (int i = 0; i < count; i += LANES) {
            Floats p = without_tiny(exponential(load(scores + i) - broadcast(largest)));
            p = keep_first(p, seen - i, zero);
            if (shape.in_fp32()) {
                store(reinterpret_cast<float *>(scratch.probabilities) + row * SPAN + i, p);
            } else {
                p = round_to_bf16(p);
                auto *to = reinterpret_cast<PairElement *>(scratch.probabilities);
                store_pairs(to + row * SPAN + i, p, LANES);
            }
            total = total + p;
        }
        scratch.tile.largest[row] = largest;
        scratch.tile.total[row] = reduce_add(total);
    }

    // Rows first .. last; row r sees seen[r] positions.
    void attend(int first, int last, const int *seen) const {
        gather();
        bool fp32 = shape.in_fp32();
        int words = shape.head_size * static_cast<int>(element()) / 4;
        multiply_rows(fp32, scratch.query + first * row_bytes(), row_bytes(), last - first,
                      scratch.keys, SPAN * 4, round_up(count, LANES) / LANES, words,
                      scratch.scores + first * SPAN, SPAN, scratch.ahead);
        for (int row = first; row < last; row++) softmax(row, seen[row]);
        multiply_rows(fp32, scratch.probabilities + first * SPAN * operand(), SPAN * operand(),
                      last - first, scratch.values, shape.padded() * 4, shape.padded() / LANES,
                      fp32 ? count : (count + 1) / 2,
                      scratch.tile.output + first * shape.padded(), shape.padded(),
                      scratch.ahead);
    }
};

}  // namespace

int Block::length(int token) const {
    if (!ancestors) return seen ? seen[token - begin] : row.prefix + token + 1;
    return row.prefix + __builtin_popcountll(static_cast<uint64_t>(ancestors[token - begin]));
}

int Block::length_max() const {
    int longest = 0;
    for (int token = begin; token < end; token++) longest = std::max(longest, length(token));
    return longest;
}

int tile_count(const Block &block) { return (block.length_max() + SPAN - 1) / SPAN; }

int fetches_per_head(const AttentionShape &shape) {
    auto up = [](int a, int b) { return (a + b - 1) / b; };
    constexpr int COLUMNS = native::ATTENTION_COLUMNS;
    int words = shape.in_fp32() ? shape.head_size : up(shape.head_size, 2);
    int steps = shape.in_fp32() ? SPAN : SPAN / 2;    // of the values
    int keys = SPAN / LANES * up(words, LANES), values = steps / AHEAD_STEPS;
    int scores = up(SPAN, COLUMNS) * up(words, AHEAD_STEPS);
    return keys + values + scores + up(shape.padded(), COLUMNS) * steps / AHEAD_STEPS;
}

AttentionScratch::AttentionScratch(const AttentionShape &shape) : sums(shape.kv_heads) {
    size_t rows = std::max(shape.group(), QUERY_ROWS), padded = shape.padded();
    size_t bytes = 0;
    std::vector<size_t> begins;
    auto reserve = [&](size_t size) {
        begins.push_back(bytes);
        bytes += (size + 63) / 64 * 64;
    };
    reserve(rows * padded * 4);                                           // query
    reserve(SPAN * padded * 4);                                           // keys
    reserve(SPAN * padded * 4);                                           // values
    reserve(rows * SPAN * 4);                                             // probabilities
    reserve(rows * SPAN * 4);                                             // scores
    reserve(SPAN * static_cast<size_t>(shape.head_size) * sizeof(bf16) + 64);  // widened
    for (size_t i = 0; i <= sums.size(); i++) {                           // tile and sums
        reserve(rows * padded * 4), reserve(rows * 4), reserve(rows * 4);
    }
    memory = Memory(bytes);
    auto next = begins.begin();
    auto bytes_at = [&] { return memory.as<uint8_t>() + *next++; };
    auto floats_at = [&] { return reinterpret_cast<float *>(bytes_at()); };
    query = bytes_at(), keys = bytes_at(), values = bytes_at(), probabilities = bytes_at();
    scores = floats_at(), widened = bytes_at();
    auto partial_at = [&] {
        float *output = floats_at(), *largest = floats_at();
        return Partial{output, largest, floats_at()};
    };
    tile = partial_at();
    for (Partial &sum : sums) sum = partial_at();
}

void load_queries(const AttentionShape &shape, const float *const *heads, int rows,
                  AttentionScratch &scratch) {
    for (int row = 0; row < rows; row++) {
        for (int i = 0; i < shape.padded(); i += LANES) {
            Floats value = without_tiny(load_first(heads[row] + i, shape.head_size - i));
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
    int64_t offsets[SPAN];
    int seen[QUERY_ROWS + 256];
    int tokens = block.end - block.begin, longest = 0, first_seeing = tokens;
    for (int i = tokens - 1; i >= 0; i--) {
        int count = std::clamp(block.length(block.begin + i) - start, 0, SPAN);
        longest = std::max(longest, count);
        if (count > 0) first_seeing = i;
        for (int g = 0; g < group; g++) {
            seen[i * group + g] = count;
            if (count == 0) scratch.tile.total[i * group + g] = 0;
        }
    }
    if (!block.ancestors || start + SPAN <= block.row.prefix) {
        for (int i = 0; i < longest; i++) offsets[i] = block.row.slot(start + i) * bytes;
        Tile{shape, lane, scratch, offsets, longest}.attend(first_seeing * group, tokens * group,
                                                            seen);
        return;
    }
    // Tokens of a tree see different slots at the same logical position.
    for (int token = first_seeing; token < tokens; token++) {
        int count = seen[token * group], position = 0;
        auto see = [&](int slot_position) {
            if (position >= start && position < start + count) {
                offsets[position - start] = block.row.slot(slot_position) * bytes;
            }
            position++;
        };
        for (position = std::min(start, block.row.prefix); position < block.row.prefix;) {
            see(position);
        }
        uint64_t ancestors = static_cast<uint64_t>(block.ancestors[token]);
        for (; ancestors; ancestors &= ancestors - 1) {
            see(block.row.prefix + __builtin_ctzll(ancestors));
        }
        if (count == 0) continue;
        Tile{shape, lane, scratch, offsets, count}.attend(token * group, (token + 1) * group, seen);
    }
}

void merge(const AttentionShape &shape, const Partial &sum, const Partial &tile, int rows,
           bool is_first) {
    for (int row = 0; row < rows; row++) {
        float *out = sum.output + row * shape.padded();
        const float *in = tile.output + row * shape.padded();
        if (is_first) {
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
