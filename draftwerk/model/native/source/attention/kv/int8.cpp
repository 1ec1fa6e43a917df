// Signed bytes of a head, the largest 127, and then the float that scales them.
#include <cstring>

#include "attention/kv_formats.h"
#include "simd/simd.h"

namespace {

void store_bytes_of(const float *head, int size, uint8_t *to) {
    Floats most = broadcast(0.0f);
    for (int i = 0; i < size; i += LANES) {
        most = max(most, absolute(load_first(head + i, size - i)));
    }
    float largest = reduce_max(most), scale = largest < TINY ? 0.0f : largest / 127.0f;
    Floats inverse = broadcast(scale > 0 ? 1.0f / scale : 0.0f);
    for (int i = 0; i < size; i += LANES) {
        store_bytes(to + i, to_ints(load_first(head + i, size - i) * inverse), size - i);
    }
    memcpy(to + size, &scale, sizeof scale);
}

// A copy of where heads go is nothing that their numbers could overwrite.
template <class Size>
[[gnu::always_inline]] inline void widen_heads(const void *base, const int64_t *offsets, int count,
                                               Size size, Widened to) {
    for (int at = 0; at < round_up(count, LANES); at++) {
        if (at >= count) {
            to.offsets[at] = to.offsets[count - 1];
            continue;
        }
        const uint8_t *head = static_cast<const uint8_t *>(base) + offsets[at];
        float scale;
        memcpy(&scale, head + size, sizeof scale);
        to.offsets[at] = static_cast<int64_t>(at) * size * sizeof(bf16);
        auto *out = reinterpret_cast<bf16 *>(to.room + to.offsets[at]);
        for (int i = 0; i < size; i += LANES) {
            Floats value = to_floats(load_bytes(head + i, size - i)) * broadcast(scale);
            store_bf16(out + i, value, size - i);
        }
    }
}

struct Bytes final : KvFormat {
    constexpr Bytes() : KvFormat(false, false) {}
    size_t head_bytes(int size) const override { return size + sizeof(float); }
    void store_head(const float *, const float *key, const float *value, int size,
                    void *key_to, void *value_to) const override {
        store_bytes_of(key, size, static_cast<uint8_t *>(key_to));
        store_bytes_of(value, size, static_cast<uint8_t *>(value_to));
    }
    const uint8_t *keys(const Lane &lane, const int64_t *offsets, int count, int size,
                        const Widened &to) const override {
        of_size(size, [&](auto size) { widen_heads(lane.keys, offsets, count, size, to); });
        return to.room;
    }
    const uint8_t *values(const Lane &lane, const int64_t *offsets, int count, int size,
                          const Widened &to) const override {
        of_size(size, [&](auto size) { widen_heads(lane.values, offsets, count, size, to); });
        return to.room;
    }
};
constexpr Bytes INT8;

}  // namespace

const KvFormat &int8_kv() { return INT8; }
