#include "attention/kv/trellis.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "simd/simd.h"

namespace trellis {
namespace {

constexpr float NEVER = 1e30f;

// Around each number eight levels in order have one of each label: tables of where they begin, by
// number, and of the levels by label. Lanes are the labels of a key's number, then those of a
// value's.
constexpr int NUMBERS = 256;
constexpr float PER_ONE = 32;
struct Windows {
    uint8_t start[NUMBERS];
    float level[128], levels[128 - STATES + 1][LANES] = {};
    template <size_t HALF>
    Windows(const std::array<uint16_t, HALF> &upper, int lanes) {
        const int last = 2 * static_cast<int>(HALF) - STATES;
        for (int at = 0; at < last + STATES; at++) {
            level[at] = ::widen(level_of(upper, label_of(at % STATES), at / STATES));
        }
        for (int number = 0; number < NUMBERS; number++) {
            const float value = static_cast<float>(number - NUMBERS / 2) / PER_ONE;
            int at = 0;
            while (at < last && level[at + STATES / 2 - 1] + level[at + STATES / 2] < 2 * value) at++;
            start[number] = static_cast<uint8_t>(at);
        }
        for (int at = 0; at <= last; at++) {
            for (int i = at; i < at + STATES; i++) levels[at][lanes + label_of(i % STATES)] = level[i];
        }
    }
};

void find_starts(const Windows &windows, const float *numbers, int size, uint8_t *starts) {
    const Floats half = broadcast(NUMBERS / 2.0f), one = broadcast(1.0f);
    for (int i = 0; i < size; i += LANES) {
        const Floats at = load(numbers + i) * broadcast(PER_ONE);
        store_bytes(starts + i, to_ints(min(max(at, broadcast(0.0f) - half), half - one)), LANES);
    }
    for (int i = 0; i < size; i++) {
        starts[i] = windows.start[(starts[i] + NUMBERS / 2) % NUMBERS];
    }
}

// The codes along the way to the cheapest of the last states; `takes` has of each number for which
// states that before the last three is set.
void trace(const uint16_t *takes, int lanes, const float *cost, const uint8_t *starts,
           const Windows &windows, int first, int run, Codes &codes) {
    auto state = static_cast<int>(std::min_element(cost, cost + STATES) - cost);
    for (int i = first + run - 1; i >= first; i--) {
        const int before = takes[i - first] >> (lanes + state) & 1, u = state & 1;
        const int subset = label_of(state ^ before);
        const int rank = (starts[i] + STATES - 1 - subset) / STATES;
        codes.ranks[i] = static_cast<uint8_t>(rank);
        codes.bits[i] = static_cast<uint8_t>(u);
        codes.levels[i] = windows.level[STATES * rank + subset];
        state = state >> 1 | before << 2;
    }
}

void choose_run(const Windows &of_keys, const Windows &of_values, const float *key,
                const float *value, const uint8_t *key_starts, const uint8_t *value_starts,
                int first, int run, Codes &keys, Codes &values) {
    uint16_t takes[RUN];
    float costs[LANES];
    for (int lane = 0; lane < LANES; lane++) costs[lane] = lane % STATES ? NEVER : 0.0f;
    Floats cost = load(costs);
    const Mask is_key = mask_of((1 << STATES) - 1);
    for (int i = first; i < first + run; i++) {
        const Floats levels =
            load(of_keys.levels[key_starts[i]]) + load(of_values.levels[value_starts[i]]);
        const Floats apart = select(is_key, broadcast(key[i]), broadcast(value[i])) - levels;
        const Floats error = apart * apart;
        const Floats zero = permute_eights<0, 0, 1, 1, 2, 2, 3, 3>(cost) + error;
        const Floats one = permute_eights<4, 4, 5, 5, 6, 6, 7, 7>(cost) +
                           permute_eights<1, 0, 3, 2, 5, 4, 7, 6>(error);
        takes[i - first] = static_cast<uint16_t>(bits(less(one, zero)));
        cost = min(zero, one);
    }
    store(costs, cost);
    trace(takes, 0, costs, key_starts, of_keys, first, run, keys);
    trace(takes, STATES, costs + STATES, value_starts, of_values, first, run, values);
}

}  // namespace

void choose(const float *key, const float *value, int size, Codes &keys, Codes &values) {
    static const Windows of_keys(FINE, 0), of_values(COARSE, STATES);
    uint8_t key_starts[CODES_MAX], value_starts[CODES_MAX];
    find_starts(of_keys, key, size, key_starts);
    find_starts(of_values, value, size, value_starts);
    for (int first = 0; first < size; first += 2 * RUN) {
        const int run = run_at(first, size);
        for (int half = 0; half < 2; half++) {
            choose_run(of_keys, of_values, key, value, key_starts, value_starts, first + half * run,
                       run, keys, values);
        }
    }
}

}  // namespace trellis
