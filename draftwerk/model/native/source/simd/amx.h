// Integer products of many rows by AMX, where the processor has it and a build has VNNI beside it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace amx {

constexpr int ROWS = 32;                // two tiles of activations
constexpr int WORD_BYTES = 64;          // of sixteen columns, four inputs each

// Whether this processor has it and the system lets this process use it.
bool available();

// Gives this thread tiles of `rows` rows, and of weights of eight words of four inputs; they stay
// until `release`.
void use_rows(int rows);
// Of a thread that is about to wait: cores sleep less deeply with tiles in use.
void release();
// sums[ROWS][16] of each of `count` groups of 32 bytes and each of `panels` panels: signed bytes of
// `rows` rows (as given to `use_rows`), groups `step` bytes apart, times words of weights, which
// follow each other by group and panel, as sums do.
void multiply(int rows, const int8_t *from, size_t stride, size_t step, const uint8_t *weights,
              int count, int panels, int32_t *sums);

// Makes so many rounds of four products of whole tiles; and a round's multiply-adds, 0 without AMX.
void multiply_again(long rounds);
long round_size();

}  // namespace amx
