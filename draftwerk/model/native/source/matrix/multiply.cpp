// The products of matrices of floats: a kernel for each format and number of rows.
#include <array>
#include <utility>

#include "matrix/coded.h"
#include "matrix/stored.h"
#include "simd/tile.h"

namespace {

using native::ROWS;

using coded::REGISTERS;
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

// `upcoming` are the lines to fetch meanwhile, so many at a time.
template <bool PAIRS, int COUNT>
void multiply_floats(const Rows &rows, const uint8_t *panel, size_t panel_bytes,
                     const uint8_t *upcoming, size_t stride, int lines, float *out) {
    using Size = Extent<COUNT>;
    const Size size{panel_bytes};
    const int steps = PAIRS ? (rows.k + 1) / 2 : rows.k;
    Sums<COUNT, Size::COLUMNS> sums = {};
    for (int step = 0; step < steps; step++, panel += 4 * PANEL) {
        if (step % Size::FETCH_STEPS == 0) {
            for (int line = 0; line < lines; line++) native::prefetch(upcoming + 64 * line);
            upcoming += stride;
        }
        add_step<PAIRS, COUNT, Size::COLUMNS>(sums, rows.data, rows.stride, step,
                                              [&](int j) { return panel + size.offset(j); });
    }
    store<COUNT, Size::COLUMNS>(sums, out, TILE);
}

// The same products of a coded panel, each added when its turn would come. Where no lines are to be
// fetched, the panel's own are, which are in the cache: kernels without would take time to compile.
template <int COUNT>
void multiply_coded(const Rows &rows, const uint8_t *panel, size_t panel_bytes,
                    const uint8_t *upcoming, size_t, int lines, float *out) {
    using Size = Extent<COUNT>;
    using Pairs = Words<true>;
    constexpr int WIDE = Size::WIDE, UNITS = coded::UNITS, LINES = coded::GROUP_LINES;
    Sums<COUNT, Size::COLUMNS> sums = {};
    auto fetch = [&](int w, int first, int last) INLINED {
        for (int line = first; line < last; line++) {
            native::prefetch(upcoming + w * panel_bytes + line * coded::LINE_BYTES);
        }
    };
    const uint8_t *row = rows.data;
    if (!lines) upcoming = panel;
    for (int begin = 0; begin < rows.k; begin += coded::CHUNK) {
        const uint8_t *chunk = panel;
        auto heading = [&](int w) INLINED {
            return reinterpret_cast<const coded::Heading *>(chunk + w * panel_bytes);
        };
        const int groups = std::min(coded::CHUNK, rows.k - begin) / coded::GROUP;
        bool is_told = true;
        repeat<WIDE>([&](auto w) INLINED {
            fetch(w, 0, 1);
            is_told &= !heading(w)->exceptions;
        });
        panel += coded::LINE_BYTES, upcoming += coded::LINE_BYTES;
        alignas(64) uint8_t words[WIDE][coded::CHUNK * PANEL * sizeof(bf16)];
        for (int w = 0; !is_told && w < WIDE; w++) {
            coded::read_chunk(chunk + w * panel_bytes, groups, words[w]);
        }
        for (int group = 0; group < groups; group++) {
            repeat<WIDE>([&](auto w) INLINED {
                repeat<UNITS>([&](auto unit) INLINED {
                    fetch(w, unit * LINES / UNITS, (unit + 1) * LINES / UNITS);
                    native::Ints found[4];
                    if (is_told) {
                        coded::read(heading(w)->table,
                                    panel + w * panel_bytes + unit * coded::UNIT_BYTES, found);
                    } else {
                        repeat<4>([&](auto i) INLINED {
                            const int at = (group * UNITS + unit) * 4 + i;
                            found[i] = native::load_ints(words[w] + at * REGISTER_BYTES);
                        });
                    }
                    repeat<4>([&](auto i) INLINED {
                        constexpr int AT = 4 * unit + i, J = w * REGISTERS + AT % REGISTERS;
                        repeat<Pairs::HALVES>([&](auto later) INLINED {
                            constexpr int HALF = Pairs::HALVES - 1 - later;
                            const auto word = native::pairs_half(found[i], HALF);
                            each_of<COUNT>([&](int r) INLINED {
                                constexpr int STEP = AT / REGISTERS;
                                const auto x = Pairs::spread(row + r * rows.stride, STEP, HALF);
                                sums[r][J] = native::fma(x, word, sums[r][J]);
                            });
                        });
                    });
                });
            });
            row += coded::STEPS * 2 * sizeof(PairElement);
            panel += coded::GROUP_BYTES, upcoming += coded::GROUP_BYTES;
        }
    }
    store<COUNT, Size::COLUMNS>(sums, out, TILE);
}

using Kernel = void (*)(const Rows &, const uint8_t *, size_t, const uint8_t *, size_t, int,
                        float *);

template <bool PAIRS, int... COUNT>
constexpr auto floats_by_rows(std::integer_sequence<int, COUNT...>) {
    return std::array<Kernel, sizeof...(COUNT)>{multiply_floats<PAIRS, COUNT + 1>...};
}
constexpr auto FP32 = floats_by_rows<false>(std::make_integer_sequence<int, ROWS>());
constexpr auto BF16 = floats_by_rows<true>(std::make_integer_sequence<int, ROWS>());

template <int... COUNT>
constexpr auto coded_by_rows(std::integer_sequence<int, COUNT...>) {
    return std::array<Kernel, sizeof...(COUNT)>{multiply_coded<COUNT + 1>...};
}
constexpr auto CODED = coded_by_rows(std::make_integer_sequence<int, ROWS>());

Kernel kernel_of(const Matrix &matrix, int count, bool is_coded) {
    if (is_coded) return CODED[count - 1];
    return (matrix.format == Format::fp32 ? FP32 : BF16)[count - 1];
}

}  // namespace

const uint8_t *decoded(const Matrix &matrix, int tile, int passes, int count, int which) {
    if (!matrix.is_coded) return nullptr;
    if (passes <= 2 && count <= native::WIDE_ROWS) return nullptr;
    thread_local std::vector<uint8_t> rooms[2];
    const size_t size = matrix.plain_panel_bytes;
    std::vector<uint8_t> &room = rooms[which];
    if (room.size() < PANELS * size) room.resize(PANELS * size);
    for (int panel = 0; panel < PANELS; panel++) {
        const size_t offset = panel * matrix.panel_bytes;
        coded::read_all(matrix.tile(tile) + offset, matrix.k, room.data() + panel * size);
    }
    return room.data();
}

void multiply(const Matrix &matrix, const Operand &operand, int row, int count, int tile,
              const Upcoming &upcoming, float *out, const uint8_t *words) {
    if (matrix.format == Format::stored) {
        return multiply_stored(matrix, operand, row, count, tile, upcoming, out);
    }
    Rows rows{operand.data.as<uint8_t>() + row * operand.stride, operand.stride, matrix.k};
    const bool is_coded = matrix.is_coded && !words;
    Kernel kernel = kernel_of(matrix, count, is_coded);
    const size_t panel_bytes = words ? matrix.plain_panel_bytes : matrix.panel_bytes;
    const uint8_t *from = words ? words : matrix.tile(tile);
    int panels = count <= native::WIDE_ROWS ? PANELS : 1;
    for (int panel = 0; panel < PANELS; panel += panels) {
        const uint8_t *next = upcoming.tile ? upcoming.tile + panel * matrix.panel_bytes : nullptr;
        kernel(rows, from + panel * panel_bytes, panel_bytes, next, upcoming.stride,
               upcoming.lines, out + panel * PANEL);
    }
}
