// A weight matrix in the order the kernels read it, and the activations they multiply it with.
//
//     tile t holds the output columns 48 t .. 48 t + 48, for all inputs, in panels of as many
//     columns as a kernel keeps in registers for several rows (48 or 16), each contiguous:
//     fp32  [k]      [panel]         one input a step
//     bf16  [k / 2]  [panel][2]      a pair of inputs a step; as codes (coded.h) if that can be
//
// What is quantised, by a file or here (quantise.cpp), is stored in GGUF's blocks (stored.h), in
// tiles of up to 48 columns.
//
// An output is one chain of additions over k in ascending order whatever the number of rows and
// the shape of panels: its bits depend on its own row and column only.
#pragma once

#include <vector>

#include "simd/amx.h"
#include "simd/simd.h"
#include "threads/memory.h"

enum class Format { fp32 = 0, bf16 = 1, stored = 2 };

using native::PANEL;
constexpr int TILE = 48;
constexpr int PANELS = TILE / PANEL;
constexpr int BLOCK = 32;
constexpr int ROWS_MAX = 32;
static_assert(native::ROWS <= ROWS_MAX && amx::ROWS == ROWS_MAX);

// How many rows `multiply` takes at once.
inline int rows_at_once(Format format) {
    return format == Format::stored ? ROWS_MAX : native::ROWS;
}

// A weight matrix as it comes: [n, k] row by row, float or bf16.
struct Source {
    const void *data;
    bool is_bf16;
    int n, k;
    const float *bias;
};

// Up to three panels of one type.
struct StoredTile {
    const uint8_t *data;
    size_t panel_bytes;
    int kind;
    int first, count;               // columns
};

struct Matrix {
    Format format = Format::fp32;
    int tiles = 0, k = 0;
    size_t panel_bytes = 0, tile_bytes = 0;
    bool is_coded = false;
    size_t plain_panel_bytes = 0;   // of a panel that is not
    Memory data;                    // of bf16, behind a line that tells whether it is coded
    std::vector<float> bias;        // empty without, else of 48 columns a tile
    std::vector<StoredTile> stored; // by tile, of that format

    Matrix() = default;
    Matrix(Format format, int tiles, int k, Memory data);
    Matrix(Format format, int tiles, int k);
    // What `data` of a matrix takes.
    static size_t data_bytes(Format format, int tiles, int k);
    // Has tiles coded, or not, from now on.
    void code(bool as_codes);
    size_t used_bytes() const { return heading_bytes(format) + tiles * tile_bytes; }
    const uint8_t *tile(int index) const {
        if (!stored.empty()) return stored[index].data;
        return data.as<uint8_t>() + heading_bytes(format) + index * tile_bytes;
    }
    size_t bytes_of(int tile) const {
        return stored.empty() ? tile_bytes
                              : stored[tile].panel_bytes * ((stored[tile].count + 15) / 16);
    }
    int first_column(int tile) const { return stored.empty() ? tile * TILE : stored[tile].first; }
    int column_count(int tile) const { return stored.empty() ? TILE : stored[tile].count; }
    // Packs one tile; `columns[j]` is the source row of column j, or -1 for a column of zeros.
    // False where it cannot be coded.
    bool pack(int tile, const Source &source, const int *columns);
    static size_t heading_bytes(Format format) { return format == Format::bf16 ? 64 : 0; }
};

// Thirty-two inputs of a row for products with stored matrices: all their types read the same.
struct StoredGroup {
    int8_t bytes[BLOCK];
    float scale, weighed;           // scale times the sum of the bytes
    float weighed_halves[2];        // of sixteen bytes each
    // Where the products of centred weights begin, -centre times the sum of the bytes; where
    // products are summed in sixteen bits, those of each word's lower and upper pairs of bytes.
    int32_t start8, start_wide;     // wide: centre 128, in sixteen bits 16
    int32_t start32[2];             // of sixteen bytes each
};

// Rows of activations in the form a format's kernel reads: float, bf16 (or the same values as
// floats), or stored groups: signed bytes, each 32 with its own scale (one outlier spoils 31
// neighbours, not the row).
struct Operand {
    Format format = Format::fp32;
    int k = 0;
    size_t stride = 0;              // bytes from row to row
    Memory data;

    void reserve(Format format, int rows, int k);
    void put_row(int row, const float *values);
    // For fp32 and bf16, whose elements do not depend on each other: columns begin .. begin +
    // count.
    void put_columns(int row, int begin, int count, const float *values);
    // Of an operand of the same format and width.
    void copy_row(int row, const Operand &from, int from_row);
    bool elementwise() const { return format != Format::stored; }
};

constexpr int FETCH_LINES = 6;

// What to fetch into the L2 cache during a product: `lines` of every six lines of a tile.
struct Upcoming {
    const uint8_t *tile = nullptr;
    int lines = 0;
    bool whole = false;             // in the first pass
    size_t stride = 64 * FETCH_LINES;   // bytes of the tile that six lines of a plain one stand for

    // The share of pass `pass` of `passes` over the rows: spread, because memory has a pace.
    Upcoming share(int pass, int passes) const {
        if (whole) return pass ? Upcoming{} : *this;
        int first = lines * pass / passes, last = lines * (pass + 1) / passes;
        return {tile + 64 * first, last - first, false, stride};
    }
};

// The words of a coded tile, in memory that this thread has for each `which` of two, where a kernel
// would decode them more than twice. Null: they are read as they are.
const uint8_t *decoded(const Matrix &matrix, int tile, int passes, int count, int which);

// out[r][48] = the products of rows row .. row + count (at most `rows_at_once`) with one tile, or
// with the `words` that it has decoded.
void multiply(const Matrix &matrix, const Operand &operand, int row, int count, int tile,
              const Upcoming &upcoming, float *out, const uint8_t *words = nullptr);
