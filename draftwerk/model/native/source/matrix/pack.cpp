// Weights from [n, k] rows into tiles, as floats.
#include <cmath>

#include "matrix/matrix.h"

namespace {

size_t bytes_per_panel(Format format, int k) {
    size_t columns = PANEL;
    return format == Format::fp32 ? columns * k * 4 : columns * round_up(k, 2) * 2;
}

void read_row(const Source &source, int row, float *values) {
    size_t begin = static_cast<size_t>(row) * source.k;
    for (int i = 0; i < source.k; i++) {
        float value = source.is_bf16 ? widen(static_cast<const bf16 *>(source.data)[begin + i])
                                     : static_cast<const float *>(source.data)[begin + i];
        values[i] = std::fabs(value) < TINY ? 0.0f : value;
    }
}

void pack_column(Format format, const float *values, int k, int column, uint8_t *panel) {
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
