// The products of stored matrices: operands, and the kernel of each type.
#include "matrix/stored.h"

#include <algorithm>

#include "matrix/stored_kernel.h"

namespace {

using native::ByteSums;
using stored_kernel::Kernels;

// Fewer rows do not pay for AMX's way through memory (an Emerald Rapids, with two threads).
constexpr int TILED_ROWS_MIN = 25;

const Kernels &kernels(Kind kind) {
    switch (kind) {
        case Kind::q4_0: return stored_kernel::Q4_0;
        case Kind::q4_1: return stored_kernel::Q4_1;
        case Kind::q5_0: return stored_kernel::Q5_0;
        case Kind::q5_1: return stored_kernel::Q5_1;
        case Kind::q8_0: return stored_kernel::Q8_0;
        case Kind::q2_k: return stored_kernel::Q2_K;
        case Kind::q3_k: return stored_kernel::Q3_K;
        case Kind::q4_k: return stored_kernel::Q4_K;
        case Kind::q5_k: return stored_kernel::Q5_K;
        case Kind::q6_k: return stored_kernel::Q6_K;
        case Kind::iq4_nl: return stored_kernel::IQ4_NL;
        case Kind::iq4_xs: return stored_kernel::IQ4_XS;
        case Kind::f32: return stored_kernel::F32;
        case Kind::f16: return stored_kernel::F16;
        case Kind::bf16: return stored_kernel::BF16;
        case Kind::g4_32: return stored_kernel::G4_32;
        case Kind::g4_128: return stored_kernel::G4_128;
        case Kind::g8_128: return stored_kernel::G8_128;
        case Kind::f8_128: return stored_kernel::F8_128;
        default: return stored_kernel::MXFP4;
    }
}

// -centre times a sum, as products are summed here.
int32_t start_of(int centre, const ByteSums &sums) {
    if constexpr (!native::PAIR_SUMS) return -centre * sums.all();
    uint32_t lower = static_cast<uint16_t>(-centre * sums.lower);
    return static_cast<int32_t>(lower | static_cast<uint32_t>(-centre * sums.upper) << 16);
}

[[gnu::always_inline]] inline void put_group(const Floats (&values)[2], StoredGroup &to) {
    float most = reduce_max(max(absolute(values[0]), absolute(values[1])));
    float scale = most < TINY ? 0.0f : most / 127.0f;
    Floats inverse = broadcast(scale > 0 ? 1.0f / scale : 0.0f);
    ByteSums half[2];
    for (int i = 0; i < 2; i++) {
        const Ints whole = to_ints(values[i] * inverse);
        store_bytes(reinterpret_cast<uint8_t *>(to.bytes) + i * LANES, whole, LANES);
        half[i] = native::sums_of_sixteen(to.bytes + i * LANES);
        to.weighed_halves[i] = scale * static_cast<float>(half[i].all());
        to.start32[i] = start_of(32, half[i]);
    }
    const ByteSums all = {half[0].lower + half[1].lower, half[0].upper + half[1].upper};
    to.scale = scale, to.weighed = scale * static_cast<float>(all.all());
    to.start8 = start_of(8, all);
    to.start_wide = start_of(native::PAIR_SUMS ? 16 : 128, all);
}

}  // namespace

void put_stored_row(const float *values, int k, StoredGroup *groups) {
    for (int begin = 0; begin < k; begin += BLOCK) {
        const float *from = values + begin;
        const int rest = k - begin;
        StoredGroup &to = groups[begin / BLOCK];
        if (rest >= BLOCK) put_group({load(from), load(from + LANES)}, to);
        else put_group({load_first(from, rest), load_first(from + LANES, rest - LANES)}, to);
    }
}

void multiply_stored(const Matrix &matrix, const Operand &operand, int row, int count, int tile,
                     const Upcoming &upcoming, float *out) {
    const StoredTile &of = matrix.stored[tile];
    const Kernels &by_rows = kernels(static_cast<Kind>(of.kind));
    if (count >= TILED_ROWS_MIN && by_rows.tiled && amx::available()) {
        const uint8_t *rows = operand.data.as<uint8_t>() + row * operand.stride;
        const uint8_t *next = upcoming.lines ? upcoming.tile : nullptr;
        by_rows.tiled({rows, operand.stride, count}, matrix.k, of, next, out);
        return;
    }
    // All rows with one panel after the other, and its successor's lines spread over their passes.
    const int passes = (count + native::STORED_ROWS - 1) / native::STORED_ROWS;
    for (int panel = 0; panel * STORED_PANEL < of.count; panel++) {
        const uint8_t *at = of.data + panel * of.panel_bytes, *next = at + of.panel_bytes;
        const bool is_last = (panel + 1) * STORED_PANEL >= of.count;
        if (is_last) next = upcoming.lines ? upcoming.tile : at;
        for (int begin = 0, pass = 0; begin < count;) {
            const int rest = count - begin, left = passes - pass;
            const int most = std::min(rest, native::STORED_ROWS);
            int now = std::min((rest + left - 1) / left, most);
            if (!by_rows.of[now]) now = most;
            while (!by_rows.of[now]) now = (now + 1) / 2;
            const uint8_t *rows = operand.data.as<uint8_t>() + (row + begin) * operand.stride;
            by_rows.of[now](rows, operand.stride, matrix.k, at, {next, pass, passes},
                            out + begin * TILE + panel * STORED_PANEL);
            begin += now;
            pass = std::min(pass + 1, passes - 1);
        }
    }
}
