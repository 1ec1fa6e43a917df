// The products of matrices of floats: a kernel for each format and number of rows.
#include <array>
#include <utility>

#include "matrix/stored.h"
#include "simd/tile.h"

namespace {

using native::ROWS;

constexpr int REGISTERS = PANEL / native::LANES;    // of a panel
constexpr size_t REGISTER_BYTES = sizeof(native::Floats);

struct Rows {
    const uint8_t *data;
    size_t stride;
    int k;
};

// One kernel's share of a tile: COUNT rows times WIDE panels side by side.
template <int COUNT>
struct Extent {
    static constexpr int WIDE = COUNT <= native::WIDE_ROWS ? PANELS : 1;
    static constexpr int COLUMNS = WIDE * REGISTERS;
    // How many steps, of a word for each column, take six cache lines.
    static constexpr int FETCH_STEPS = FETCH_LINES * 64 / (WIDE * PANEL * 4);
    size_t panel_bytes;

    // Where the words of registers' column `j` begin.
    size_t offset(int j) const {
        return j / REGISTERS * panel_bytes + j % REGISTERS * REGISTER_BYTES;
    }
};

template <int FETCH>
inline void fetch(const uint8_t *upcoming) {
    for (int line = 0; line < FETCH; line++) native::prefetch(upcoming + 64 * line);
}

template <bool PAIRS, int COUNT, int FETCH>
void multiply_floats(const Rows &rows, const uint8_t *panel, size_t panel_bytes,
                     const uint8_t *upcoming, float *out) {
    using Size = Extent<COUNT>;
    const Size size{panel_bytes};
    const int steps = PAIRS ? (rows.k + 1) / 2 : rows.k;
    Sums<COUNT, Size::COLUMNS> sums = {};
    for (int step = 0; step < steps; step++, panel += 4 * PANEL) {
        if (step % Size::FETCH_STEPS == 0) {
            fetch<FETCH>(upcoming);
            upcoming += 64 * FETCH_LINES;
        }
        add_step<PAIRS, COUNT, Size::COLUMNS>(sums, rows.data, rows.stride, step,
                                              [&](int j) { return panel + size.offset(j); });
    }
    store<COUNT, Size::COLUMNS>(sums, out, TILE);
}

template <int COUNT, int FETCH>
constexpr auto multiply_fp32 = multiply_floats<false, COUNT, FETCH>;
template <int COUNT, int FETCH>
constexpr auto multiply_bf16 = multiply_floats<true, COUNT, FETCH>;

using Kernel = void (*)(const Rows &, const uint8_t *, size_t, const uint8_t *, float *);
struct Kernels {
    Kernel by_lines[FETCH_LINES + 1];
};

// A pass fetches all six lines, or a half, a third or a sixth of them, or none.
#define BY_LINES(kernel)                                                                          \
    template <int... COUNT>                                                                       \
    constexpr auto kernel##_by_rows(std::integer_sequence<int, COUNT...>) {                       \
        return std::array<Kernels, sizeof...(COUNT)>{                                             \
            Kernels{{kernel<COUNT + 1, 0>, kernel<COUNT + 1, 1>, kernel<COUNT + 1, 2>,            \
                     kernel<COUNT + 1, 3>, nullptr, nullptr, kernel<COUNT + 1, 6>}}...};          \
    }
BY_LINES(multiply_fp32)
BY_LINES(multiply_bf16)
#undef BY_LINES

constexpr auto FP32 = multiply_fp32_by_rows(std::make_integer_sequence<int, ROWS>());
constexpr auto BF16 = multiply_bf16_by_rows(std::make_integer_sequence<int, ROWS>());

const Kernels &kernels(Format format, int count) {
    return format == Format::fp32 ? FP32[count - 1] : BF16[count - 1];
}

}  // namespace

void multiply(const Matrix &matrix, const Operand &operand, int row, int count, int tile,
              const Upcoming &upcoming, float *out) {
    if (matrix.format == Format::stored) {
        return multiply_stored(matrix, operand, row, count, tile, upcoming, out);
    }
    Rows rows{operand.data.as<uint8_t>() + row * operand.stride, operand.stride, matrix.k};
    Kernel kernel = kernels(matrix.format, count).by_lines[upcoming.lines];
    int panels = count <= native::WIDE_ROWS ? PANELS : 1;
    for (int panel = 0; panel < PANELS; panel += panels) {
        size_t offset = panel * matrix.panel_bytes;
        const uint8_t *next = upcoming.tile ? upcoming.tile + offset : nullptr;
        kernel(rows, matrix.tile(tile) + offset, matrix.panel_bytes, next, out + panel * PANEL);
    }
}
