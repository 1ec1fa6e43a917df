// The matrix products: for each format one kernel, instantiated for each number of rows.
#include <array>
#include <utility>

#include "matrix/stored.h"
#include "simd/tile.h"

namespace {

using native::BLOCK_ROWS;
using native::ROWS;

constexpr int REGISTERS = PANEL / native::LANES;    // of a panel
constexpr size_t REGISTER_BYTES = sizeof(native::Floats);

struct Rows {
    const uint8_t *data;
    size_t stride;
    const float *scales;
    const float *sums;
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

// Four inputs of a register's columns; int4 has two quads in each vector of bytes.
template <Format FORMAT, int QUAD>
inline native::Ints load_quad(const uint8_t *block) {
    if (FORMAT == Format::int8) return native::load_ints(block + QUAD * 4 * PANEL);
    return native::nibbles<QUAD % 2 * 4>(native::load_ints(block + QUAD / 2 * 4 * PANEL));
}

template <Format FORMAT>
using Sum = native::QuadSum<FORMAT == Format::int4>;
template <Format FORMAT>
using Weights = native::QuadWeights<FORMAT == Format::int4>;

// sums[r][j] += the integer products of quad QUAD of one block.
template <Format FORMAT, int COUNT, int FETCH, int QUAD>
inline void dot_quad(const Extent<COUNT> &size, const uint8_t *block, const uint8_t *bytes,
                     size_t stride, const uint8_t *upcoming,
                     Sum<FORMAT> (&sums)[COUNT][Extent<COUNT>::COLUMNS]) {
    using Size = Extent<COUNT>;
    constexpr int QUADS = Size::FETCH_STEPS * (FORMAT == Format::int8 ? 1 : 2);
    if (QUAD % QUADS == 0) fetch<FETCH>(upcoming + QUAD / QUADS * 64 * FETCH_LINES);
    if (Size::COLUMNS <= 3) {
        native::Ints w[Size::COLUMNS];
        for (int j = 0; j < Size::COLUMNS; j++) {
            w[j] = load_quad<FORMAT, QUAD>(block + size.offset(j));
        }
        for (int r = 0; r < COUNT; r++) {
            native::Ints a = native::broadcast(load_int(bytes + r * stride + QUAD * 4));
            for (int j = 0; j < Size::COLUMNS; j++) sums[r][j].add(Weights<FORMAT>(w[j]), a);
        }
    } else {
        native::Ints a[COUNT];
        for (int r = 0; r < COUNT; r++) {
            a[r] = native::broadcast(load_int(bytes + r * stride + QUAD * 4));
        }
        for (int j = 0; j < Size::COLUMNS; j++) {
            Weights<FORMAT> w(load_quad<FORMAT, QUAD>(block + size.offset(j)));
            for (int r = 0; r < COUNT; r++) sums[r][j].add(w, a[r]);
        }
    }
}

template <Format FORMAT, int COUNT, int FETCH, int... QUAD>
inline void dot_block(const Extent<COUNT> &size, const uint8_t *block, const uint8_t *bytes,
                      size_t stride, const uint8_t *upcoming,
                      Sum<FORMAT> (&sums)[COUNT][Extent<COUNT>::COLUMNS],
                      std::integer_sequence<int, QUAD...>) {
    (dot_quad<FORMAT, COUNT, FETCH, QUAD>(size, block, bytes, stride, upcoming, sums), ...);
}

template <Format FORMAT, int COUNT, int FETCH>
void multiply_blocks(const Rows &rows, const uint8_t *panel, size_t panel_bytes,
                     const uint8_t *upcoming, float *out) {
    using Size = Extent<COUNT>;
    const Size size{panel_bytes};
    const int blocks = block_count(rows.k);
    Sums<COUNT, Size::COLUMNS> sums = {};
    for (int block = 0; block < blocks; block++) {
        const BlockOffsets<FORMAT> at(block);
        // Of panels side by side, what is to be fetched is six lines a step all the same.
        const uint8_t *next = upcoming + Size::WIDE * at.quants;
        if (FETCH && block % 2 == 0) {
            fetch<Size::WIDE * at.HEAD / 64>(upcoming + Size::WIDE * at.scales);
        }
        const float *row_scales = rows.scales + block, *row_sums = rows.sums + block;
        Sum<FORMAT> dots[COUNT][Size::COLUMNS];
        for (int r = 0; r < COUNT; r++) {
            bool offset = FORMAT == Format::int8 && native::WEIGHT_OFFSET;
            int start = offset ? load_int(row_sums + r * blocks) : 0;
            for (int j = 0; j < Size::COLUMNS; j++) dots[r][j].begin(start);
        }
        dot_block<FORMAT, COUNT, FETCH>(size, panel + at.quants, rows.data + block * BLOCK,
                                        rows.stride, next, dots,
                                        std::make_integer_sequence<int, BLOCK / 4>());
        for (int j = 0; j < Size::COLUMNS; j++) {
            const uint8_t *halves = panel + j / REGISTERS * panel_bytes +
                                    j % REGISTERS * native::LANES * sizeof(uint16_t);
            auto load_halves = [&](size_t offset) {
                return native::load_halves(reinterpret_cast<const uint16_t *>(halves + offset));
            };
            native::Floats scale = load_halves(at.scales);
            for (int r = 0; r < COUNT; r++) {
                auto dot = native::multiply(native::to_floats(dots[r][j].total()), scale);
                sums[r][j] = native::fma(dot, native::broadcast(row_scales[r * blocks]),
                                         sums[r][j]);
            }
            if (FORMAT == Format::int8) continue;
            native::Floats minimum = load_halves(at.minima);
            for (int r = 0; r < COUNT; r++) {
                sums[r][j] = native::fma(minimum, native::broadcast(row_sums[r * blocks]),
                                         sums[r][j]);
            }
        }
    }
    store<COUNT, Size::COLUMNS>(sums, out, TILE);
}

template <int COUNT, int FETCH>
constexpr auto multiply_int8 = multiply_blocks<Format::int8, COUNT, FETCH>;
template <int COUNT, int FETCH>
constexpr auto multiply_int4 = multiply_blocks<Format::int4, COUNT, FETCH>;

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
BY_LINES(multiply_int8)
BY_LINES(multiply_int4)
#undef BY_LINES

constexpr auto FP32 = multiply_fp32_by_rows(std::make_integer_sequence<int, ROWS>());
constexpr auto BF16 = multiply_bf16_by_rows(std::make_integer_sequence<int, ROWS>());
constexpr auto INT8 = multiply_int8_by_rows(std::make_integer_sequence<int, BLOCK_ROWS>());
constexpr auto INT4 = multiply_int4_by_rows(std::make_integer_sequence<int, BLOCK_ROWS>());

const Kernels &kernels(Format format, int count) {
    switch (format) {
        case Format::fp32: return FP32[count - 1];
        case Format::bf16: return BF16[count - 1];
        case Format::int8: return INT8[count - 1];
        default: return INT4[count - 1];
    }
}

}  // namespace

void multiply(const Matrix &matrix, const Operand &operand, int row, int count, int tile,
              const Upcoming &upcoming, float *out) {
    if (matrix.format == Format::stored) {
        return multiply_stored(matrix, operand, row, count, tile, upcoming, out);
    }
    size_t first = static_cast<size_t>(row) * block_count(matrix.k);
    Rows rows{operand.data.as<uint8_t>() + row * operand.stride, operand.stride,
              operand.scales.as<float>() + first, operand.sums.as<float>() + first, matrix.k};
    Kernel kernel = kernels(matrix.format, count).by_lines[upcoming.lines];
    int panels = count <= native::WIDE_ROWS ? PANELS : 1;
    for (int panel = 0; panel < PANELS; panel += panels) {
        size_t offset = panel * matrix.panel_bytes;
        const uint8_t *next = upcoming.tile ? upcoming.tile + offset : nullptr;
        kernel(rows, matrix.tile(tile) + offset, matrix.panel_bytes, next, out + panel * PANEL);
    }
}
