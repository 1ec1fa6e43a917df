// Layers with experts: a router scores them, each row has the best few, and the rows of one expert
// are multiplied together. What they come to is added in the order of their numbers, so that a row's
// bits do not depend on the others.
//
//     scores [rows][experts] ── route ──> chosen, weights [rows][used]
//     places: (row, expert) by expert ──> up ──> down ──> contributions [row][used] ── combine
#include "forward/products.h"

namespace {

// Up to so many places are gathered by the thread that ended the stage before.
constexpr int SERIAL_PLACES = 64;
constexpr int EXPERTS_MAX = 1024;           // as in native_shape.py

}  // namespace

void Forward::multiply_router(int layer, Turn turn) {
    products(model.layers[layer].router, space.routed, count_at(layer), turn,
             [&](int row, Span columns, const float *out) {
                 copy_rounded(out, columns.count, in_bf16, scores(row) + columns.first);
             });
}

// Turns logits into shares of all, or into sigmoids; returns what the weights of those chosen are of.
float Forward::score_experts(float *score) const {
    const int count = shape.experts;
    Floats most = broadcast(-INFINITY), sum = broadcast(0.0f);
    for (int i = 0; i < count && shape.experts_sigmoid; i += LANES) {
        Floats e = exponential(broadcast(0.0f) - load(score + i));
        store(score + i, broadcast(1.0f) / (e + broadcast(1.0f)));
    }
    if (shape.experts_sigmoid) return 1.0f;
    for (int i = 0; i < count; i += LANES) {
        most = max(most, keep_first(load(score + i), count - i, broadcast(-INFINITY)));
    }
    const Floats largest = broadcast(reduce_max(most));
    for (int i = 0; i < count; i += LANES) {
        Floats share = keep_first(exponential(load(score + i) - largest), count - i, broadcast(0.0f));
        store(score + i, share);
        sum = sum + share;
    }
    return reduce_add(sum);
}

// Writes the experts of the best scores, ascending; of equal scores the earlier expert is taken.
void Forward::choose_experts(int layer, const float *score, int32_t *best) const {
    const int count = shape.experts, used = shape.experts_used;
    const std::vector<float> &bias = model.layers[layer].choice_bias;
    alignas(64) float ranks[EXPERTS_MAX];
    for (int i = 0; i < count; i += LANES) {
        Floats rank = load(score + i);
        if (!bias.empty()) rank = rank + load_first(bias.data() + i, count - i);
        store(ranks + i, keep_first(rank, count - i, broadcast(-INFINITY)));
    }
    for (int taken = 0; taken < used; taken++) {
        Floats most = broadcast(-INFINITY);
        for (int i = 0; i < count; i += LANES) most = max(most, load(ranks + i));
        const float highest = reduce_max(most);
        int found = 0;
        if (highest > -INFINITY) {
            found = static_cast<int>(std::find(ranks, ranks + count, highest) - ranks);
        } else {                        // not numbers: any that is free
            while (std::find(best, best + taken, found) != best + taken) found++;
        }
        best[taken] = found;
        ranks[found] = -INFINITY;
    }
    std::sort(best, best + used);
}

void Forward::route(int layer, int row) {
    const int count = shape.experts, used = shape.experts_used;
    float *score = scores(row), *weight = weights(row);
    if (shape.shared_is_gated) {
        const float share = 1.0f / (exponential(-score[count]) + 1.0f);
        shared_weight(row) = in_bf16 ? widen(to_bf16(share)) : share;
    }
    int32_t *best = chosen(row);
    const float total = score_experts(score);
    choose_experts(layer, score, best);
    float of_chosen = shape.experts_sigmoid ? 1e-6f : 0.0f;
    for (int i = 0; i < used; i++) {
        weight[i] = score[best[i]] / total;
        of_chosen += weight[i];
    }
    for (int i = 0; i < used && shape.experts_sum_to_one; i++) weight[i] /= of_chosen;
    const std::vector<float> &scales = model.layers[layer].expert_scales;
    for (int i = 0; i < used && !scales.empty(); i++) weight[i] *= scales[best[i]];
    for (int i = 0; i < used && shape.experts_scale != 1.0f; i++) weight[i] *= shape.experts_scale;
    for (int i = 0; i < used && in_bf16; i += LANES) {
        store_first(weight + i, round_to_bf16(load_first(weight + i, used - i)), used - i);
    }
}

// Sorts places by expert, and has each expert's rows one behind the other.
int Forward::open_experts(int layer) {
    const Layer &of = model.layers[layer];
    const int count = place_count(layer);
    if (only_products) {
        for (int i = 0; i < count; i++) space.chosen[i] = i % shape.experts;
    }
    expert_starts.assign(shape.experts + 1, 0);
    for (int i = 0; i < count; i++) expert_starts[space.chosen[i] + 1]++;
    for (int i = 0; i < shape.experts; i++) expert_starts[i + 1] += expert_starts[i];
    expert_rows.clear();
    up_items = down_items = 0;
    for (int expert = 0; expert < shape.experts; expert++) {
        int first = expert_starts[expert], rows = expert_starts[expert + 1] - first;
        if (rows == 0) continue;
        expert_rows.push_back({expert, first, rows, up_items, down_items});
        up_items += of.expert_gate_up[expert].tiles / 2 * groups(rows);
        down_items += of.expert_down[expert].tiles * groups(rows);
    }
    places.resize(count);
    for (int i = 0; i < count; i++) places[expert_starts[space.chosen[i]]++] = i;
    if (only_products) return 0;
    if (count > SERIAL_PLACES) return static_cast<int>(expert_rows.size());
    for (size_t i = 0; i < expert_rows.size(); i++) gather_expert(static_cast<int>(i));
    return 0;
}

// An expert's only row is read where it is.
void Forward::gather_expert(int item) {
    const ExpertRows &rows = expert_rows[item];
    for (int i = rows.first; i < rows.first + rows.count && rows.count > 1; i++) {
        space.expert_in.copy_row(i, space.normal, places[i] / shape.experts_used);
    }
}

Forward::ExpertItem Forward::up_item(int layer, int item) const {
    if (item < 0) return {nullptr, 0, 0};
    auto after = std::upper_bound(expert_rows.begin(), expert_rows.end(), item,
                                  [](int at, const ExpertRows &one) { return at < one.first_up; });
    const ExpertRows &rows = *std::prev(after);
    int pairs = model.layers[layer].expert_gate_up[rows.expert].tiles / 2, own = item - rows.first_up;
    return {&rows, 2 * (own % pairs), own / pairs};
}

Forward::ExpertItem Forward::down_item(int layer, int item) const {
    if (item < 0) return {nullptr, 0, 0};
    auto after = std::upper_bound(expert_rows.begin(), expert_rows.end(), item,
                                  [](int at, const ExpertRows &one) { return at < one.first_down; });
    const ExpertRows &rows = *std::prev(after);
    int tiles = model.layers[layer].expert_down[rows.expert].tiles, own = item - rows.first_down;
    return {&rows, own % tiles, own / tiles};
}

void Forward::multiply_expert_up(int layer, Turn turn) {
    const std::vector<Matrix> &matrices = model.layers[layer].expert_gate_up;
    const ExpertItem at = up_item(layer, turn.item), later = up_item(layer, turn.next);
    const ExpertRows &rows = *at.rows;
    Upcoming next, next_up;
    if (later.rows) {
        next = upcoming(matrices[later.rows->expert], later.tile);
        next_up = upcoming(matrices[later.rows->expert], later.tile + 1);
    }
    bool is_alone = rows.count == 1;
    int first_row = is_alone ? places[rows.first] / shape.experts_used : rows.first;
    int column = at.tile / 2 * TILE, size = std::min(TILE, shape.expert_ffn - column);
    multiply_gates(matrices[rows.expert], is_alone ? space.normal : space.expert_in, first_row,
                   rows.count, at.tile / 2, at.group, next, next_up,
                   [&](int row, const float *values) {
                       put_expert_gated(rows.first + row, column, size, values);
                   });
}

void Forward::put_expert_gated(int place, int column, int count, const float *values) {
    if (goes_straight(space.expert_ffn)) {
        space.expert_ffn.put_columns(place, column, count, values);
    } else {
        memcpy(expert_gated(place) + column, values, count * sizeof(float));
    }
}

void Forward::multiply_expert_down(int layer, Turn turn) {
    const std::vector<Matrix> &matrices = model.layers[layer].expert_down;
    const ExpertItem at = down_item(layer, turn.item), later = down_item(layer, turn.next);
    const ExpertRows &rows = *at.rows;
    const Matrix &matrix = matrices[rows.expert];
    Upcoming next;
    if (later.rows) next = upcoming(matrices[later.rows->expert], later.tile);
    const int first = matrix.first_column(at.tile), columns = matrix.column_count(at.tile);
    alignas(64) float out[ROWS_MAX * TILE];
    PassedTile passed{matrix, space.expert_ffn, at.tile, next};
    in_passes(matrix, rows.count, at.group, [&](int row, int count, int pass, int passes) {
        passed.multiply(rows.first + row, count, pass, passes, out);
        for (int r = 0; r < count; r++) {
            add_bias(matrix, at.tile, out + r * TILE);
            float *to = contribution(places[rows.first + row + r]) + first;
            copy_rounded(out + r * TILE, columns, in_bf16, to);
        }
    });
}

// Adds up what a row's experts have come to.
void Forward::combine(int layer, int row) {
    alignas(64) float sums[1 << 14];
    const int size = shape.hidden, used = shape.experts_used;
    const float *weight = weights(row);
    for (int i = 0; i < size; i += LANES) {
        Floats sum = broadcast(0.0f);
        for (int j = 0; j < used; j++) {
            Floats part = load(contribution(row * used + j) + i) * broadcast(weight[j]);
            sum = in_bf16 ? round_to_bf16(sum + round_to_bf16(part)) : sum + part;
        }
        store(sums + i, sum);
    }
    const Layer &of = model.layers[layer];
    if (of.after_ffn.empty()) return add_to_hidden(sums, size, hidden(token_at(layer, row)));
    if (of.after_experts.empty()) {
        memcpy(delta(row), sums, size * sizeof(float));
        return;
    }
    normalise(sums, of.after_experts.data(), size, false, sums);
    (in_bf16 ? add_to<true> : add_to<false>)(sums, size, delta(row));
}
