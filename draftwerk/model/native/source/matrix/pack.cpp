// Weights from [n, k] rows into tiles, as floats.
#include <cmath>

#include "matrix/coded.h"

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
    return heading_bytes(format) + tiles * PANELS * round_up_to_line(bytes_per_panel(format, k));
}

Matrix::Matrix(Format format, int tiles, int k, Memory data)
    : format(format), tiles(tiles), k(k), data(std::move(data)) {
    code(false);
}

Matrix::Matrix(Format format, int tiles, int k)
    : Matrix(format, tiles, k, Memory(data_bytes(format, tiles, k))) {}

void Matrix::code(bool as_codes) {
    is_coded = as_codes;
    plain_panel_bytes = round_up_to_line(bytes_per_panel(format, k));
    panel_bytes = as_codes ? coded::panel_bytes(k) : plain_panel_bytes;
    tile_bytes = PANELS * panel_bytes;
}

bool Matrix::pack(int index, const Source &source, const int *columns) {
    std::vector<float> values(k);
    std::vector<uint8_t> plain(is_coded ? PANELS * plain_panel_bytes : 0);
    uint8_t *to = const_cast<uint8_t *>(tile(index)), *panels = is_coded ? plain.data() : to;
    for (int i = 0; i < TILE; i++) {
        if (columns[i] < 0) continue;
        read_row(source, columns[i], values.data());
        pack_column(format, values.data(), k, i % PANEL, panels + i / PANEL * plain_panel_bytes);
    }
    for (int panel = 0; is_coded && panel < PANELS; panel++) {
        const auto *words = reinterpret_cast<const uint16_t *>(panels + panel * plain_panel_bytes);
        if (!coded::write(words, k, to + panel * panel_bytes)) return false;
    }
    return true;
}
