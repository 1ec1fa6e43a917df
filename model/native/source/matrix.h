// A weight matrix in the order the kernels read it, and the activations they multiply it with.
//
//     tile t holds the output columns 48 t .. 48 t + 48, for all inputs, contiguously:
//     fp32  [k]      [48]            one input a step
//     bf16  [k / 2]  [48][2]         a pair of inputs a step
//     int8  [k / 4]  [48][4]         four inputs a step, symmetric, one scale per column
//     int4  [k / 32] blocks of 960 bytes: 4 x [48][4] byte pairs, [48] fp16 scales, [48] fp16
//           minima; as in GGUF's Q4_1 a weight is scale * q + minimum, q in 0 .. 15
//
// 48 columns are three registers: with eight rows of activations, 24 accumulators. An output is
// one chain of additions over k in ascending order whatever the number of rows: its bits depend
// on its own row and column only.
#pragma once

#include <vector>

#include "memory.h"
#include "simd.h"

enum class Format { fp32 = 0, bf16 = 1, int8 = 2, int4 = 3 };

constexpr int TILE = 48;
constexpr int TILE_LANES = TILE / LANES;
constexpr int ROWS = 8;
constexpr int BLOCK = 32;
constexpr size_t BLOCK_BYTES = TILE * BLOCK / 2 + 2 * TILE * sizeof(uint16_t);

// A weight matrix as it comes: [n, k] row by row, float or bf16.
struct Source {
    const void *data;
    bool is_bf16;
    int n, k;
    const float *bias;
};

struct Matrix {
    Format format = Format::fp32;
    int tiles = 0, k = 0;
    size_t tile_bytes = 0;
    Memory data;
    std::vector<float> scales;      // int8: per column
    std::vector<int32_t> offsets;   // int8: -128 * the column's sum, for unsigned activations
    std::vector<float> bias;        // empty without

    Matrix() = default;
    Matrix(Format format, int tiles, int k);
    const uint8_t *tile(int index) const { return data.as<uint8_t>() + index * tile_bytes; }
    // Packs one tile; `columns[j]` is the source row of column j, or -1 for a column of zeros.
    void pack(int tile, const Source &source, const int *columns);
};

// Rows of activations in the form a format's kernel reads: float, bf16, or bytes with scales.
struct Operand {
    Format format = Format::fp32;
    int k = 0;
    size_t stride = 0;              // bytes from row to row
    Memory data;
    Memory scales;                  // int8: [rows]; int4: [rows][k / 32]
    Memory sums;                    // int4: [rows][k / 32], scale * sum of the block's bytes

    void reserve(Format format, int rows, int k);
    void put_row(int row, const float *values);
    // For fp32 and bf16, whose elements do not depend on each other: columns begin .. begin + count.
    void put_columns(int row, int begin, int count, const float *values);
    bool elementwise() const { return format == Format::fp32 || format == Format::bf16; }
};

// out[r][48] = the products of rows row .. row + count (at most 8) with one tile, scaled.
void multiply(const Matrix &matrix, const Operand &operand, int row, int count, int tile,
              float *out);
