// Matrices of quantised blocks as a GGUF file has them, in panels of sixteen rows (see kinds.h).
#pragma once

#include "matrix/kinds.h"
#include "matrix/matrix.h"
#include "threads/pool.h"

struct Arena;

// Rows of one type, as they lie in a file.
struct StoredPart {
    const uint8_t *data;            // [rows][row_bytes]
    const int64_t *rows;            // the source row of each; null: as they lie
    int64_t row_bytes;
    int32_t kind, count;
};

constexpr int STORED_PANEL = 16;
constexpr int STORED_PANELS = TILE / STORED_PANEL;

// What one part takes of an arena.
size_t stored_bytes(Kind kind, int count, int k);
// A matrix of parts one above the other; with `alternating` the tiles of two take turns. The parts
// may be without data where the arena is packed.
Matrix stored(Pool &pool, const std::vector<StoredPart> &parts, int k, bool alternating,
              const float *bias, Arena *arena);
// Row `row` of a matrix whose tiles do not alternate, as its format defines the values.
void unpack_row(const Matrix &matrix, int row, float *values);
// A row of weights rounded to Q8_0 or IQ4_NL; beyond k are zeros, to the end of the last block.
void quantise(Kind kind, const float *values, int k, uint8_t *blocks);
// The values of a file's row.
void dequantise(Kind kind, const uint8_t *blocks, int k, float *values);

// out[r][48] = the products of `count` rows of activations with one tile.
void multiply_stored(const Matrix &matrix, const Operand &operand, int row, int count, int tile,
                     const Upcoming &upcoming, float *out);
// As a row of an operand.
void put_stored_row(const float *values, int k, StoredGroup *groups);
