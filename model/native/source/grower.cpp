#include "grower.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "philox.h"

void Grower::grow(const Start *starts, int row_count, const TreeShape &shape, int32_t *found) {
    std::fill_n(found, static_cast<size_t>(row_count) * shape.slots() * shape.fields(), NOTHING);
    std::vector<int> used(row_count, 0);
    level.clear();
    bool sampled = false;
    for (int row = 0; row < row_count; row++) {
        level.push_back({row, -1, starts[row].token, starts[row].state, 1.0});
        sampled |= starts[row].sampled != 0;
    }
    int looked = std::min(sampled ? shape.looked : shape.best, guesser.vocab());
    for (int depth = 0; depth < shape.levels && !level.empty(); depth++) {
        think(depth, looked);
        children.clear();
        size_t first = 0;            // of this row's children
        for (size_t place = 0; place < level.size(); place++) {
            const Open &one = level[place];
            if (place && level[place - 1].row != one.row) {
                keep(first, shape.expanded);
                first = children.size();
            }
            rank(starts[one.row], depth, shape, static_cast<int>(place), looked);
            int slot = used[one.row]++;
            int32_t *to = found + (one.row * shape.slots() + slot) * shape.fields();
            to[0] = one.parent, to[1] = one.token;
            for (size_t i = 0; i < ranked.size(); i++) {
                to[2 + i] = ranked[i].token;
                to[2 + shape.best + i] = ranked[i].loss;
            }
            open(one, slot, guesses[place].next, shape);
        }
        keep(first, shape.expanded);
        thin(shape.open_max);
        level.swap(children);
    }
}

// All rows' open tokens at once.
void Grower::think(int depth, int looked) {
    size_t count = level.size(), hidden = guesser.hidden();
    std::vector<float> &after = states[depth % 2];
    after.resize(count * hidden);
    best.resize(count * looked);
    logprobs.resize(count * looked);
    guesses.clear();
    for (size_t place = 0; place < count; place++) {
        guesses.push_back({level[place].state, level[place].token, &after[place * hidden],
                           &best[place * looked], &logprobs[place * looked]});
    }
    guesser.guess(guesses.data(), static_cast<int>(count), looked);
}

// The best candidates for a place, noise included.
void Grower::rank(const Start &start, int depth, const TreeShape &shape, int place, int looked) {
    Noise noise{start.seed, start.branch, start.position + static_cast<uint32_t>(depth)};
    ranked.clear();
    for (int i = place * looked; i < (place + 1) * looked; i++) {
        // To the nearest whole number, ties to even, as Python rounds.
        double loss = std::min(std::nearbyint(-logprobs[i] / shape.loss_nats), shape.loss_max);
        double extra = start.sampled ? noise.gumbel(static_cast<uint32_t>(best[i])) : 0.0;
        ranked.push_back({start.scale * loss + extra, best[i], static_cast<int32_t>(loss)});
    }
    size_t most = std::min<size_t>(shape.best, ranked.size());
    std::partial_sort(ranked.begin(), ranked.begin() + most, ranked.end(),
                      [](const Candidate &one, const Candidate &other) {
                          if (one.score != other.score) return one.score > other.score;
                          return one.token > other.token;
                      });
    ranked.resize(most);
}

// Adds what may be thought on from, with about the chance that all of its path is right.
void Grower::open(const Open &one, int slot, const float *state, const TreeShape &shape) {
    double total = 0.0;
    for (const Candidate &each : ranked) total += std::exp(each.score - ranked[0].score);
    double share = one.chance / total;
    for (size_t i = 0; i < ranked.size() && i < static_cast<size_t>(shape.expanded); i++) {
        double chance = share * std::exp(ranked[i].score - ranked[0].score);
        if (chance < shape.chance_min) continue;
        children.push_back({one.row, slot, ranked[i].token, state, chance});
    }
}

// Leaves the likeliest of a row's children, the earlier first among equals.
void Grower::keep(size_t first, int most) {
    std::stable_sort(children.begin() + first, children.end(),
                     [](const Open &one, const Open &other) { return one.chance > other.chance; });
    if (children.size() > first + most) children.resize(first + most);
}

// Leaves the likeliest of all rows' children, in their order.
void Grower::thin(size_t most) {
    if (children.size() <= most) return;
    std::vector<size_t> places(children.size());
    std::iota(places.begin(), places.end(), 0);
    std::stable_sort(places.begin(), places.end(), [&](size_t one, size_t other) {
        return children[one].chance > children[other].chance;
    });
    std::sort(places.begin(), places.begin() + most);
    for (size_t place = 0; place < most; place++) children[place] = children[places[place]];
    children.resize(most);
}
