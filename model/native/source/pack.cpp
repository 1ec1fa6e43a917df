// Weights from [n, k] rows into tiles, and their quantisation.
#include <algorithm>
#include <cmath>

#include "matrix.h"

namespace {

size_t bytes_per_tile(Format format, int k) {
    size_t columns = TILE;
    switch (format) {
        case Format::fp32: return columns * k * 4;
        case Format::bf16: return columns * round_up(k, 2) * 2;
        case Format::int8: return BlockPlace<Format::int8>::tile_bytes(k);
        default: return BlockPlace<Format::int4>::tile_bytes(k);
    }
}

void read_row(const Source &source, int row, float *values) {
    size_t begin = static_cast<size_t>(row) * source.k;
    if (!source.is_bf16) {
        std::copy_n(static_cast<const float *>(source.data) + begin, source.k, values);
        return;
    }
    const bf16 *from = static_cast<const bf16 *>(source.data) + begin;
    for (int i = 0; i < source.k; i++) values[i] = widen(from[i]);
}

bf16 to_bf16(float value) {
    return static_cast<bf16>(_mm256_extract_epi16(narrow(_mm512_set1_ps(value)), 0));
}

float through_half(float value) { return _cvtsh_ss(_cvtss_sh(value, 0)); }

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

uint16_t &half_at(uint8_t *tile, size_t offset, int column) {
    return reinterpret_cast<uint16_t *>(tile + offset)[column];
}

void pack_int8(const float *values, int k, int column, uint8_t *tile) {
    for (int block = 0; block < block_count(k); block++) {
        BlockPlace<Format::int8> place(block);
        int begin = block * BLOCK, count = std::min(BLOCK, k - begin);
        float largest = 0;
        for (int i = 0; i < count; i++) largest = std::max(largest, std::fabs(values[begin + i]));
        float scale = through_half(largest / 127);
        half_at(tile, place.scales, column) = _cvtss_sh(scale, 0);
        for (int i = 0; i < BLOCK; i++) {
            float q = i < count && scale > 0 ? values[begin + i] / scale : 0;
            int nearest = std::clamp(static_cast<int>(std::lrint(q)), -127, 127);
            tile[place.quants + (i / 4 * TILE + column) * 4 + i % 4] =
                static_cast<uint8_t>(nearest + 128);
        }
    }
}

void pack_int4(const float *values, int k, int column, uint8_t *tile) {
    for (int block = 0; block < block_count(k); block++) {
        BlockPlace<Format::int4> place(block);
        int begin = block * BLOCK, count = std::min(BLOCK, k - begin);
        Grid grid = fitted(values + begin, count);
        half_at(tile, place.scales, column) = _cvtss_sh(grid.scale, 0);
        half_at(tile, place.minima, column) = _cvtss_sh(grid.minimum, 0);
        for (int i = 0; i < count; i++) {
            int q = grid.nearest(values[begin + i]), shift = i % 8 < 4 ? 0 : 4;
            tile[place.quants + (i / 8 * TILE + column) * 4 + i % 4] |=
                static_cast<uint8_t>(q << shift);
        }
    }
}

}  // namespace

Matrix::Matrix(Format format, int tiles, int k)
    : format(format), tiles(tiles), k(k), tile_bytes((bytes_per_tile(format, k) + 63) / 64 * 64),
      data(tiles * tile_bytes) {}

void Matrix::pack(int index, const Source &source, const int *columns) {
    uint8_t *tile = data.as<uint8_t>() + index * tile_bytes;
    std::vector<float> values(k);
    for (int column = 0; column < TILE; column++) {
        if (columns[column] < 0) continue;
        int place = index * TILE + column;
        read_row(source, columns[column], values.data());
        if (source.bias) bias[place] = source.bias[columns[column]];
        if (format == Format::fp32) {
            for (int i = 0; i < k; i++) reinterpret_cast<float *>(tile)[i * TILE + column] =
                values[i];
        } else if (format == Format::bf16) {
            bf16 *pairs = reinterpret_cast<bf16 *>(tile);
            for (int i = 0; i < k; i++) pairs[(i / 2 * TILE + column) * 2 + i % 2] =
                to_bf16(values[i]);
        } else if (format == Format::int8) {
            pack_int8(values.data(), k, column, tile);
        } else {
            pack_int4(values.data(), k, column, tile);
        }
    }
}
