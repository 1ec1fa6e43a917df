// Keys and values of a tile's positions, from wherever they lie into the order the products read.
// `offsets` are bytes from `base`, one per position, filled up to a multiple of 16.
#pragma once

#include "attention/attention.h"

// Keys as [head dimension, or pair of them][COLUMNS_MAX]; `words` are 4 bytes of a head.
void gather_keys(const uint8_t *base, const int64_t *offsets, int count, int words, uint8_t *out,
                 Ahead &ahead);

// Values as [position][words of a head, zeros up to `padded`].
void gather_values(const uint8_t *base, const int64_t *offsets, int count, int words, int padded,
                   uint8_t *out, Ahead &ahead);
