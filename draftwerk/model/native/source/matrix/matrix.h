// A weight matrix in the order the kernels read it, and the activations they multiply it with.
//
//     tile t holds the output columns 48 t .. 48 t + 48, for all inputs, in panels of as many
//     columns as a kernel keeps in registers for several rows (48 or 16), each contiguous:
//     fp32  [k]      [panel]         one input a step
//     bf16  [k / 2]  [panel][2]      a pair of inputs a step
//     int8  [k / 64] of 2 x [panel] fp16 scales, 2 blocks of 32 x [panel] bytes, in quads
//     int4  [k / 64] of 2 x [panel] fp16 scales, 2 x [panel] fp16 minima, 2 blocks of
//                       32 x [panel] nibbles, in quads, those of odd quads the upper ones
//
// The blocks are those of GGUF: int8 is Q8_0 (weight = scale * q) and int4 is Q4_1 (weight =
// scale * q + minimum, q in 0 .. 15), and tensors that were so quantised are represented exactly.
//
// An output is one chain of additions over k in ascending order whatever the number of rows and
// the shape of panels: its bits depend on its own row and column only.
#pragma once

#include <vector>

#include "simd/simd.h"
#include "threads/memory.h"

enum class Format { fp32 = 0, bf16 = 1, int8 = 2, int4 = 3 };

using native::PANEL;
constexpr int TILE = 48;
constexpr int PANELS = TILE / PANEL;
constexpr int BLOCK = 32;
constexpr int ROWS_MAX = native::ROWS > native::BLOCK_ROWS ? native::ROWS : native::BLOCK_ROWS;

inline int block_count(int k) { return round_up(k, BLOCK) / BLOCK; }
inline bool in_blocks(Format format) { return format == Format::int8 || format == Format::int4; }

// How many rows a kernel takes at once: in blocks, each row has integers and floats in registers.
inline int rows_at_once(Format format) {
    return in_blocks(format) ? native::BLOCK_ROWS : native::ROWS;
}

// Where block `index` of a panel is: pairs of blocks fill whole cache lines, each behind its
// scales, so that a panel is one stream.
template <Format FORMAT>
struct BlockOffsets {
    static constexpr size_t QUANTS = FORMAT == Format::int8 ? PANEL * BLOCK : PANEL * BLOCK / 2;
    static constexpr size_t SCALES = PANEL * sizeof(uint16_t);
    static constexpr size_t HEAD = SCALES * (FORMAT == Format::int8 ? 2 : 4);
    static constexpr size_t PAIR = HEAD + 2 * QUANTS;
    size_t quants, scales, minima;
    explicit BlockOffsets(int index)
        : quants(index / 2 * PAIR + HEAD + index % 2 * QUANTS),
          scales(index / 2 * PAIR + index % 2 * SCALES), minima(scales + 2 * SCALES) {}
    static size_t panel_bytes(int k) { return (block_count(k) + 1) / 2 * PAIR; }
};

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
    size_t panel_bytes = 0, tile_bytes = 0;
    Memory data;
    std::vector<float> bias;        // empty without

    Matrix() = default;
    Matrix(Format format, int tiles, int k, Memory data);
    Matrix(Format format, int tiles, int k);
    // What `data` of a matrix takes.
    static size_t data_bytes(Format format, int tiles, int k);
    const uint8_t *tile(int index) const { return data.as<uint8_t>() + index * tile_bytes; }
    // Packs one tile; `columns[j]` is the source row of column j, or -1 for a column of zeros.
    void pack(int tile, const Source &source, const int *columns);
};

// Rows of activations in the form a format's kernel reads: float, bf16 (or the same values as
// floats), or signed bytes in blocks of 32, each with its own scale (GGUF's Q8_1: one outlier
// spoils 31 neighbours, not the row).
struct Operand {
    Format format = Format::fp32;
    int k = 0;
    size_t stride = 0;              // bytes from row to row
    Memory data;
    Memory scales;                  // [rows][k / 32] float
    Memory sums;                    // [rows][k / 32], of the block's bytes: int8 -offset * sum, an
                                    // integer; int4 scale * sum, a float

    void reserve(Format format, int rows, int k);
    void put_row(int row, const float *values);
    // For fp32 and bf16, whose elements do not depend on each other: columns begin .. begin +
    // count.
    void put_columns(int row, int begin, int count, const float *values);
    bool elementwise() const { return !in_blocks(format); }
};

// What to fetch into the L2 cache during a product: `lines` of every six lines of a tile.
struct Upcoming {
    const uint8_t *tile = nullptr;
    int lines = 0;

    // The share of pass `pass` of `passes` over the rows: spread, because memory has a pace.
    Upcoming share(int pass, int passes) const {
        int first = lines * pass / passes, last = lines * (pass + 1) / passes;
        return {tile + 64 * first, last - first};
    }
};

constexpr int FETCH_LINES = 6;

// out[r][48] = the products of rows row .. row + count (at most `rows_at_once`) with one tile.
void multiply(const Matrix &matrix, const Operand &operand, int row, int count, int tile,
              const Upcoming &upcoming, float *out);
