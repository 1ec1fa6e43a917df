// Keys and values of a tile's positions, from wherever they lie into the order the products read.
// `offsets` are bytes from `base`, one per position, filled up to a multiple of 16.
#pragma once

#include "attention/attention.h"

// Widens int8 heads, each followed by its scale, to bf16, and returns where each is, also of
// the positions that fill up a vector.
void widen_heads(const uint8_t *base, const int64_t *offsets, int count, int size,
                 int64_t *widened, uint8_t *out);

// Keys as [head dimension, or pair of them][128 positions]; `words` are 4 bytes of a head.
void gather_keys(const uint8_t *base, const int64_t *offsets, int count, int words, uint8_t *out,
                 Ahead &ahead);

// Values as [position][head dimension].
void gather_values_fp32(const uint8_t *base, const int64_t *offsets, int count, int size,
                        int padded, uint8_t *out, Ahead &ahead);

// Values as [pair of positions][head dimension][2].
void gather_values_bf16(const uint8_t *base, const int64_t *offsets, int count, int size,
                        int padded, uint8_t *out, Ahead &ahead);
