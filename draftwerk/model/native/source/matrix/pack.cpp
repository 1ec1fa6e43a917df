// Weights from [n, k] rows into tiles, and their quantisation.
#include <algorithm>
#include <cmath>

#include "matrix/half.h"
#include "matrix/matrix.h"

namespace {

size_t bytes_per_panel(Format format, int k) {
    size_t columns = PANEL;
    switch (format) {
        case Format::fp32: return columns * k * 4;
        case Format::bf16: return columns * round_up(k, 2) * 2;
        case Format::int8: return BlockOffsets<Format::int8>::panel_bytes(k);
        default: return BlockOffsets<Format::int4>::panel_bytes(k);
    }
}

void read_row(const Source &source, int row, float *values) {
    size_t begin = static_cast<size_t>(row) * source.k;
    for (int i = 0; i < source.k; i++) {
        float value = source.is_bf16 ? widen(static_cast<const bf16 *>(source.data)[begin + i])
                                     : static_cast<const float *>(source.data)[begin + i];
        values[i] = std::fabs(value) < TINY ? 0.0f : value;
    }
}

float through_half(float value) { return from_half(to_half(value)); }

struct Grid {
    float scale, minimum;
    int nearest(float value) const {
        if (scale == 0) return 0;
        return std::clamp(static_cast<int>(std::lrint((value - minimum) / scale)), 0, 15);
    }
    float error(const float *values, int count) const {
        float total = 0;
        for (int i = 0; i < count; i++) {
            float off = values[i] - (nearest(values[i]) * scale + minimum);
            total += off * off;
        }
        return total;
    }
};

// The least-squares line through (q, value), for the q that `grid` gives.
Grid refitted(const Grid &grid, const float *values, int count) {
    double q1 = 0, q2 = 0, v1 = 0, qv = 0;
    for (int i = 0; i < count; i++) {
        double q = grid.nearest(values[i]);
        q1 += q, q2 += q * q, v1 += values[i], qv += q * values[i];
    }
    double spread = count * q2 - q1 * q1;
    if (spread == 0) return grid;
    double scale = (count * qv - q1 * v1) / spread;
    return {through_half(static_cast<float>(scale)),
            through_half(static_cast<float>((v1 - scale * q1) / count))};
}

// Blocks that were once Q4_1 span their grid, so its ends give back scale and minimum exactly.
Grid fitted(const float *values, int count) {
    auto [low, high] = std::minmax_element(values, values + count);
    Grid grid{through_half((*high - *low) / 15), through_half(*low)};
    float error = grid.error(values, count);
    for (int round = 0; round < 2 && error > 0; round++) {
        Grid other = refitted(grid, values, count);
        float other_error = other.error(values, count);
        if (other_error >= error) break;
        grid = other, error = other_error;
    }
    return grid;
}

uint16_t &half_at(uint8_t *panel, size_t offset, int column) {
    return reinterpret_cast<uint16_t *>(panel + offset)[column];
}

void pack_int8(const float *values, int k, int column, uint8_t *panel) {
    for (int block = 0; block < block_count(k); block++) {
        BlockOffsets<Format::int8> at(block);
        int begin = block * BLOCK, count = std::min(BLOCK, k - begin);
        float largest = 0;
        for (int i = 0; i < count; i++) largest = std::max(largest, std::fabs(values[begin + i]));
        float scale = through_half(largest / 127);
        half_at(panel, at.scales, column) = to_half(scale);
        for (int i = 0; i < BLOCK; i++) {
            float q = i < count && scale > 0 ? values[begin + i] / scale : 0;
            int nearest = std::clamp(static_cast<int>(std::lrint(q)), -127, 127);
            panel[at.quants + (i / 4 * PANEL + column) * 4 + i % 4] =
                static_cast<uint8_t>(nearest + native::WEIGHT_OFFSET);
        }
    }
}

void pack_int4(const float *values, int k, int column, uint8_t *panel) {
    for (int block = 0; block < block_count(k); block++) {
        BlockOffsets<Format::int4> at(block);
        int begin = block * BLOCK, count = std::min(BLOCK, k - begin);
        Grid grid = fitted(values + begin, count);
        half_at(panel, at.scales, column) = to_half(grid.scale);
        half_at(panel, at.minima, column) = to_half(grid.minimum);
        for (int i = 0; i < count; i++) {
            int q = grid.nearest(values[begin + i]), shift = i % 8 < 4 ? 0 : 4;
            panel[at.quants + (i / 8 * PANEL + column) * 4 + i % 4] |=
                static_cast<uint8_t>(q << shift);
        }
    }
}

void pack_column(Format format, const float *values, int k, int column, uint8_t *panel) {
    if (format == Format::int8) return pack_int8(values, k, column, panel);
    if (format == Format::int4) return pack_int4(values, k, column, panel);
    float *floats = reinterpret_cast<float *>(panel);
    bf16 *pairs = reinterpret_cast<bf16 *>(panel);
    for (int i = 0; i < k; i++) {
        size_t in_pairs = (i / 2 * PANEL + column) * 2 + i % 2;
        if (format == Format::fp32) floats[i * PANEL + column] = values[i];
        if (format == Format::bf16) pairs[in_pairs] = to_bf16(values[i]);
    }
}

size_t round_up_to_line(size_t bytes) { return (bytes + 63) / 64 * 64; }

}  // namespace

size_t Matrix::data_bytes(Format format, int tiles, int k) {
    return tiles * PANELS * round_up_to_line(bytes_per_panel(format, k));
}

Matrix::Matrix(Format format, int tiles, int k, Memory data)
    : format(format), tiles(tiles), k(k), panel_bytes(round_up_to_line(bytes_per_panel(format, k))),
      tile_bytes(PANELS * panel_bytes), data(std::move(data)) {}

Matrix::Matrix(Format format, int tiles, int k)
    : Matrix(format, tiles, k, Memory(data_bytes(format, tiles, k))) {}

void Matrix::pack(int index, const Source &source, const int *columns) {
    std::vector<float> values(k);
    for (int i = 0; i < TILE; i++) {
        if (columns[i] < 0) continue;
        read_row(source, columns[i], values.data());
        uint8_t *panel = data.as<uint8_t>() + index * tile_bytes + i / PANEL * panel_bytes;
        pack_column(format, values.data(), k, i % PANEL, panel);
    }
}
