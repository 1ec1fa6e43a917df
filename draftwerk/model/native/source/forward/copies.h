// Moves of keys and values between slots or blocks, all layers, as if all at once.
#pragma once

#include <cstddef>
#include <cstdint>

// `tensor` is [layers][units][bytes]; unit from[i] is copied to unit to[i].
void copy_units(uint8_t *tensor, int layers, int64_t units, int64_t bytes, const int64_t *from,
                const int64_t *to, int count);

// Keys that are copied to other positions: [layers][slots][heads][size] in float or bf16.
struct TurnedKeys {
    void *keys;
    const float *inverse_frequencies;    // [size / 2]
    const int64_t *sources, *targets;
    int64_t slots;
    int32_t heads, size, is_bf16, count, turn;
};

// Copies one layer's keys, rotated by `turn` positions in float and rounded once.
void turn_keys(const TurnedKeys &keys, int layer);
