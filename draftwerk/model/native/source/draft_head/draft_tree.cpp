#include "draft_head/draft_tree.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "sampling/philox.h"

void DraftTreeBuilder::build(const TreeStart *starts, int row_count, const TreeShape &shape,
                             int32_t *nodes) {
    std::fill_n(nodes, static_cast<size_t>(row_count) * shape.slots() * shape.fields(), NOTHING);
    std::vector<int> used(row_count, 0);
    level_.clear();
    bool sampled = false;
    for (int row = 0; row < row_count; row++) {
        level_.push_back({row, -1, starts[row].token, starts[row].state, 1.0});
        sampled |= starts[row].sampled != 0;
    }
    int count = std::min(sampled ? shape.ranked : shape.best, head_.vocab());
    for (int depth = 0; depth < shape.depth && !level_.empty(); depth++) {
        run_head(depth, count);
        children_.clear();
        size_t first = 0;            // of this row's children
        for (size_t index = 0; index < level_.size(); index++) {
            const Leaf &leaf = level_[index];
            if (index && level_[index - 1].row != leaf.row) {
                keep_best_of_row(first, shape.expanded);
                first = children_.size();
            }
            rank(starts[leaf.row], depth, shape, static_cast<int>(index), count);
            int slot = used[leaf.row]++;
            int32_t *to = nodes + (leaf.row * shape.slots() + slot) * shape.fields();
            to[0] = leaf.parent, to[1] = leaf.token;
            for (size_t i = 0; i < ranked_.size(); i++) {
                to[2 + i] = ranked_[i].token;
                to[2 + shape.best + i] = ranked_[i].loss;
            }
            expand(leaf, slot, rows_[index].next, shape);
        }
        keep_best_of_row(first, shape.expanded);
        keep_best(shape.open_max);
        level_.swap(children_);
    }
}

// All rows' leaves at once.
void DraftTreeBuilder::run_head(int depth, int count) {
    size_t leaves = level_.size(), hidden = head_.hidden();
    std::vector<float> &after = states_[depth % 2];
    after.resize(leaves * hidden);
    best_.resize(leaves * count);
    logprobs_.resize(leaves * count);
    rows_.clear();
    for (size_t index = 0; index < leaves; index++) {
        rows_.push_back({level_[index].state, level_[index].token, &after[index * hidden],
                         &best_[index * count], &logprobs_[index * count]});
    }
    head_.run(rows_.data(), static_cast<int>(leaves), count);
}

// The best candidates after a leaf, noise included.
void DraftTreeBuilder::rank(const TreeStart &start, int depth, const TreeShape &shape, int index,
                            int count) {
    Noise noise{start.seed, start.branch, start.position + static_cast<uint32_t>(depth)};
    ranked_.clear();
    for (int i = index * count; i < (index + 1) * count; i++) {
        // To the nearest whole number, ties to even, as Python rounds.
        double loss = std::min(std::nearbyint(-logprobs_[i] / shape.loss_nats), shape.loss_max);
        double extra = start.sampled ? noise.gumbel(static_cast<uint32_t>(best_[i])) : 0.0;
        ranked_.push_back({start.scale * loss + extra, best_[i], static_cast<int32_t>(loss)});
    }
    size_t most = std::min<size_t>(shape.best, ranked_.size());
    std::partial_sort(ranked_.begin(), ranked_.begin() + most, ranked_.end(),
                      [](const Candidate &one, const Candidate &other) {
                          if (one.score != other.score) return one.score > other.score;
                          return one.token > other.token;
                      });
    ranked_.resize(most);
}

// Adds the children that are likely enough to be leaves themselves.
void DraftTreeBuilder::expand(const Leaf &leaf, int slot, const float *state,
                              const TreeShape &shape) {
    double total = 0.0;
    for (const Candidate &each : ranked_) total += elementary::exp(each.score - ranked_[0].score);
    double share = leaf.chance / total;
    for (size_t i = 0; i < ranked_.size() && i < static_cast<size_t>(shape.expanded); i++) {
        double chance = share * elementary::exp(ranked_[i].score - ranked_[0].score);
        if (chance < shape.chance_min) continue;
        children_.push_back({leaf.row, slot, ranked_[i].token, state, chance});
    }
}

// Leaves the likeliest of a row's children, the earlier first among equals.
void DraftTreeBuilder::keep_best_of_row(size_t first, int most) {
    std::stable_sort(children_.begin() + first, children_.end(),
                     [](const Leaf &one, const Leaf &other) { return one.chance > other.chance; });
    if (children_.size() > first + most) children_.resize(first + most);
}

// Leaves the likeliest of all rows' children, in their order.
void DraftTreeBuilder::keep_best(size_t most) {
    if (children_.size() <= most) return;
    std::vector<size_t> indices(children_.size());
    std::iota(indices.begin(), indices.end(), 0);
    std::stable_sort(indices.begin(), indices.end(), [&](size_t one, size_t other) {
        return children_[one].chance > children_[other].chance;
    });
    std::sort(indices.begin(), indices.begin() + most);
    for (size_t i = 0; i < most; i++) children_[i] = children_[indices[i]];
    children_.resize(most);
}
