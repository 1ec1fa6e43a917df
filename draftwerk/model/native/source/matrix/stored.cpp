// Blocks from a file's rows into panels and back; words move, nothing is computed.
#include "matrix/stored.h"

#include <algorithm>
#include <cstring>

#include "matrix/packing.h"
#include "simd/tile.h"

namespace {

// Bit 4 t + b of the word to bit t of byte b: the fifth bits of a word's inputs, side by side.
uint32_t spread_bits(uint32_t word) {
    uint32_t moved = 0;
    for (int i = 0; i < 32; i++) moved |= (word >> i & 1) << (i % 4 * 8 + i / 4);
    return moved;
}
uint32_t gathered_bits(uint32_t word) {
    uint32_t moved = 0;
    for (int i = 0; i < 32; i++) moved |= (word >> (i % 4 * 8 + i / 4) & 1) << i;
    return moved;
}

template <class Of>
void pack_unit(const uint8_t *block, int lane, uint8_t *unit, uint8_t *halves) {
    if (Of::PAIRED) memcpy(halves + 2 * lane, block + Of::HALF, 2);
    repeat<Of::LINES>([&](auto line) {
        uint8_t bytes[4];
        repeat<4>([&](auto i) { bytes[i] = block[Of::byte_of(line, i)]; });
        uint32_t word;
        memcpy(&word, bytes, 4);
        if (line == Of::FIFTH) word = spread_bits(word);
        memcpy(unit + line * LINE + 4 * lane, &word, 4);
    });
}

template <class Of>
void unpack_unit(const uint8_t *unit, const uint8_t *halves, int lane, uint8_t *block) {
    if (Of::PAIRED) memcpy(block + Of::HALF, halves + 2 * lane, 2);
    repeat<Of::LINES>([&](auto line) {
        uint32_t word;
        memcpy(&word, unit + line * LINE + 4 * lane, 4);
        if (line == Of::FIFTH) word = gathered_bits(word);
        uint8_t bytes[4];
        memcpy(bytes, &word, 4);
        repeat<4>([&](auto i) { block[Of::byte_of(line, i)] = bytes[i]; });
    });
}

// One row into its lane. The last unit of a row may be more than the file has.
template <class Of>
void pack_row(const uint8_t *row, size_t row_bytes, int lane, uint8_t *panel) {
    int unit = 0;
    for (size_t at = 0; at < row_bytes; at += Of::FILE_BYTES, unit++) {
        uint8_t rest[Of::FILE_BYTES] = {};
        const uint8_t *block = row + at;
        if (row_bytes - at < Of::FILE_BYTES) {
            std::copy_n(block, row_bytes - at, rest);
            block = rest;
        }
        pack_unit<Of>(block, lane, panel + unit_at<Of>(unit), panel + halves_at<Of>(unit));
    }
}

struct StoredPacking : Job {
    const Matrix &matrix;
    const std::vector<StoredPart> &parts;
    std::vector<std::pair<int, int>> sources;       // by tile, the part and its first row there

    StoredPacking(const Matrix &matrix, const std::vector<StoredPart> &parts)
        : matrix(matrix), parts(parts) {}
    int open(int stage) override { return stage == 0 ? matrix.tiles : -1; }
    void run(int, int item, int) override {
        const StoredTile &tile = matrix.stored[item];
        const StoredPart &part = parts[sources[item].first];
        for (int i = 0; i < tile.count; i++) {
            int64_t row = sources[item].second + i;
            if (part.rows) row = part.rows[row];
            auto *panel = const_cast<uint8_t *>(tile.data) + i / STORED_PANEL * tile.panel_bytes;
            with_layout(static_cast<Kind>(tile.kind), [&](auto of) {
                using Of = decltype(of);
                size_t bytes = static_cast<size_t>(matrix.k) * Of::FILE_BYTES / Of::INPUTS;
                pack_row<Of>(part.data + row * part.row_bytes, bytes, i % STORED_PANEL, panel);
            });
        }
    }
};

// The parts and their first rows in the order of tiles.
std::vector<std::pair<int, int>> tile_order(const std::vector<StoredPart> &parts,
                                            bool alternating) {
    std::vector<std::pair<int, int>> order;
    for (size_t which = 0; which < parts.size(); which++) {
        for (int row = 0; row < parts[which].count; row += TILE) order.push_back({which, row});
    }
    auto earlier = [](auto a, auto b) { return a.second < b.second; };
    if (alternating) std::stable_sort(order.begin(), order.end(), earlier);
    return order;
}

// Of the tiles' columns, each tile's in a place of 48.
std::vector<float> bias_of(const Matrix &matrix, const float *bias) {
    std::vector<float> found(static_cast<size_t>(matrix.tiles) * TILE);
    for (int tile = 0; tile < matrix.tiles; tile++) {
        const StoredTile &of = matrix.stored[tile];
        std::copy_n(bias + of.first, of.count, found.begin() + tile * TILE);
    }
    return found;
}

size_t panel_bytes_of(Kind kind, int k) {
    return with_layout(kind, [&](auto of) { return stored_panel_bytes<decltype(of)>(k); });
}

}  // namespace

size_t stored_bytes(Kind kind, int count, int k) {
    return panel_bytes_of(kind, k) * ((count + STORED_PANEL - 1) / STORED_PANEL);
}

Matrix stored(Pool &pool, const std::vector<StoredPart> &parts, int k, bool alternating,
              const float *bias, Arena *arena) {
    Arena none;
    Arena &from = arena ? *arena : none;
    Matrix matrix;
    matrix.format = Format::stored, matrix.k = k;
    size_t total = 0;
    std::vector<int> before(parts.size());       // columns of the parts in front
    for (size_t i = 0; i < parts.size(); i++) {
        total += stored_bytes(static_cast<Kind>(parts[i].kind), parts[i].count, k);
        if (i > 0) before[i] = before[i - 1] + parts[i - 1].count;
    }
    matrix.data = from.take(total);
    const uint8_t *at = matrix.data.as<uint8_t>();
    StoredPacking packing(matrix, parts);
    packing.sources = tile_order(parts, alternating);
    for (auto [which, row] : packing.sources) {
        const StoredPart &part = parts[which];
        Kind kind = static_cast<Kind>(part.kind);
        int count = std::min(TILE, part.count - row);
        size_t panel = panel_bytes_of(kind, k);
        matrix.stored.push_back({at, panel, part.kind, before[which] + row, count});
        at += stored_bytes(kind, count, k);
    }
    matrix.tiles = static_cast<int>(matrix.stored.size());
    if (bias) matrix.bias = bias_of(matrix, bias);
    if (!from.is_packed) pool.run(packing);
    return matrix;
}

void unpack_row(const Matrix &matrix, int row, float *values) {
    int index = row / TILE;                      // there, or behind parts that end in short tiles
    while (row >= matrix.stored[index].first + matrix.stored[index].count) index++;
    const StoredTile &tile = matrix.stored[index];
    row -= tile.first;
    const int lane = row % STORED_PANEL;
    const uint8_t *panel = tile.data + row / STORED_PANEL * tile.panel_bytes;
    with_layout(static_cast<Kind>(tile.kind), [&](auto of) {
        using Of = decltype(of);
        for (int begin = 0, unit = 0; begin < matrix.k; begin += Of::INPUTS, unit++) {
            uint8_t block[Of::FILE_BYTES];
            unpack_unit<Of>(panel + unit_at<Of>(unit), panel + halves_at<Of>(unit), lane, block);
            dequantise(Of::kind, block, std::min(Of::INPUTS, matrix.k - begin), values + begin);
        }
    });
}
