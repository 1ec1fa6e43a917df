// Keys and values as the products read them.
#include "attention/kv_formats.h"
#include "simd/simd.h"

namespace {

struct Plain final : KvFormat {
    constexpr explicit Plain(bool in_fp32) : KvFormat(in_fp32, false) {}
    size_t head_bytes(int size) const override {
        return size * (in_fp32 ? sizeof(float) : sizeof(bf16));
    }
    void store_head(const float *, const float *key, const float *value, int size,
                    void *key_to, void *value_to) const override {
        store_floats(key, size, in_fp32, key_to);
        store_floats(value, size, in_fp32, value_to);
    }
};
constexpr Plain FP32(true), BF16(false);

}  // namespace

const KvFormat &fp32_kv() { return FP32; }
const KvFormat &bf16_kv() { return BF16; }

void store_floats(const float *head, int size, bool in_fp32, void *to) {
    for (int i = 0; i < size; i += LANES) {
        Floats value = without_tiny(load_first(head + i, size - i));
        if (in_fp32) {
            store_first(static_cast<float *>(to) + i, value, size - i);
        } else {
            store_bf16(static_cast<bf16 *>(to) + i, value, size - i);
        }
    }
}
