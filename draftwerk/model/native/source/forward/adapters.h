// LoRA adapters: what a matrix of the model comes to for some rows, and beside it B (A x) * scale.
//
//     A   panels of 16 ranks, those of all modules of a fused matrix one behind the other:
//         [inputs] words of [16], a word being a float or a pair of bf16. Where eight ranks or
//         fewer are left, their panel is folded: it has them twice, for the first and for the
//         second half of the inputs
//     B   by tile of the model's matrix, with its 48 columns: 3 panels of [ranks] words of [16]
//
// Sums are chains in a fixed order, so that a row's bits depend on it and on its adapter alone.
#pragma once

#include <array>
#include <vector>

#include "matrix/matrix.h"

// The pair of one module.
struct AdapterModule {
    const float *a, *b;             // [rank][inputs], [columns][rank]
    int32_t layer, part;
    int32_t first, columns;         // of the part's
    int32_t rank, inputs;
    float scale;
};

// What multiplies the ranks into the columns of one tile.
struct AdapterTile {
    int first = 0, count = 0;       // ranks: those of all modules that have columns there
    const uint8_t *panels = nullptr;
};

// An adapter's part for one matrix.
struct AdapterPart {
    int ranks = 0;                  // of all modules, each an even number; 0: it has none
    int inputs = 0;
    const uint8_t *a = nullptr;
    std::vector<float> scales;      // by rank
    std::vector<AdapterTile> tiles;
};

constexpr int ADAPTED_PARTS = 4;    // qkv, output, gate and up, down

struct Adapter {
    Format format = Format::bf16;   // or fp32
    Memory data;
    std::vector<std::array<AdapterPart, ADAPTED_PARTS>> layers;
};

// The columns of a matrix that each of its tiles computes, -1 for none.
using TileColumns = std::vector<std::array<int, TILE>>;
// Packs an adapter; `columns` by layer and part.
Adapter packed_adapter(Format format, const std::vector<AdapterModule> &modules,
                       const std::vector<std::array<TileColumns, ADAPTED_PARTS>> &columns);

// inner[row] = A x * scale of rows side by side, at most ADAPTED_ROWS; both operands are floats or
// bf16.
constexpr int ADAPTED_ROWS = 4;
void multiply_a(const AdapterPart &part, const Operand &operand, int row, int count,
                Operand &inner);
// out[r][48] += B inner[row + r] in the columns of a tile, of any number of rows.
void add_b(const AdapterTile &tile, const Operand &inner, int row, int count, float *out);
// Has a tile's B in the L2 cache.
void fetch_b(Format format, const AdapterTile &tile);
