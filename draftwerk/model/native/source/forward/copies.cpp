#include "forward/copies.h"

#include <cstring>
#include <vector>

#include "attention/kv_formats.h"
#include "forward/rows.h"
#include "matrix/half.h"
#include "simd/elementary.h"

void copy_units(uint8_t *tensor, int layers, int64_t units, int64_t bytes, const int64_t *from,
                const int64_t *to, int count) {
    // Read all, then write all: a unit may be both a source and a target.
    std::vector<uint8_t> held(static_cast<size_t>(count) * bytes);
    for (int layer = 0; layer < layers; layer++, tensor += units * bytes) {
        for (int i = 0; i < count; i++) memcpy(&held[i * bytes], tensor + from[i] * bytes, bytes);
        for (int i = 0; i < count; i++) memcpy(tensor + to[i] * bytes, &held[i * bytes], bytes);
    }
}

void turn_keys(const TurnedKeys &turned, int layer) {
    const int half = turned.size / 2, padded = round_up(half, LANES);
    const size_t element = turned.is_bf16 ? sizeof(bf16) : sizeof(float);
    const size_t slot_bytes = element * turned.heads * turned.size;
    std::vector<float> cosine(padded), sine(padded), head(turned.size + LANES);
    for (int i = 0; i < half; i++) {
        double s, c;
        float angle = static_cast<float>(turned.turn) * turned.inverse_frequencies[i];
        elementary::sine_and_cosine(angle, s, c);
        cosine[i] = static_cast<float>(c), sine[i] = static_cast<float>(s);
    }
    auto *keys = static_cast<uint8_t *>(turned.keys) + layer * turned.slots * slot_bytes;
    for (int index = 0; index < turned.count; index++) {
        const uint8_t *from = keys + turned.sources[index] * slot_bytes;
        uint8_t *to = keys + turned.targets[index] * slot_bytes;
        for (int each = 0; each < turned.heads; each++) {
            size_t at = each * turned.size * element;
            for (int i = 0; i < turned.size; i++) {
                head[i] = turned.is_bf16 ? widen(reinterpret_cast<const bf16 *>(from + at)[i])
                                         : reinterpret_cast<const float *>(from + at)[i];
            }
            rotate<false>(head.data(), cosine.data(), sine.data(), half);
            store_floats(head.data(), turned.size, !turned.is_bf16, to + at);
        }
    }
}
