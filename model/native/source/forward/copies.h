// Moves of keys and values between slots or blocks, all layers, as if all at once.
#pragma once

#include <cstdint>

// `tensor` is [layers][units][bytes]; unit from[i] is copied to unit to[i].
void copy_units(uint8_t *tensor, int layers, int64_t units, int64_t bytes, const int64_t *from,
                const int64_t *to, int count);
