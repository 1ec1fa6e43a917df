#include "attention/kv_formats.h"

#include <cstring>

#include "simd/simd.h"

const KvFormat &fp32_kv();
const KvFormat &bf16_kv();
const KvFormat &int8_kv();
const KvFormat &int4_kv();

// As draftwerk/cache/pages/kv_formats.py numbers them.
static const KvFormat &(*const ROWS[])() = {fp32_kv, bf16_kv, int8_kv, int4_kv};

const KvFormat &kv_format(int number) { return ROWS[number](); }

static const uint8_t *as_they_lie(const void *base, const int64_t *offsets, int count,
                                  const Widened &to) {
    memcpy(to.offsets, offsets, round_up(count, LANES) * sizeof(int64_t));
    return static_cast<const uint8_t *>(base);
}

const uint8_t *KvFormat::keys(const Lane &lane, const int64_t *offsets, int count, int,
                              const Widened &to) const {
    return as_they_lie(lane.keys, offsets, count, to);
}

const uint8_t *KvFormat::values(const Lane &lane, const int64_t *offsets, int count, int,
                                const Widened &to) const {
    return as_they_lie(lane.values, offsets, count, to);
}
