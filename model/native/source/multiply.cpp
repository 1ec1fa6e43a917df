// The matrix products: for each format one kernel, instantiated for 1 to 8 rows.
#include "matrix.h"

namespace {

// FETCH of the six cache lines that two steps of the upcoming tile take.
constexpr int FETCH_STEPS = 2;

template <int FETCH>
inline void fetch(const uint8_t *upcoming) {
    for (int line = 0; line < FETCH; line++) {
        _mm_prefetch(reinterpret_cast<const char *>(upcoming + 64 * line), _MM_HINT_T1);
    }
}

struct Rows {
    const uint8_t *data;
    size_t stride;
    const float *scales;
    const float *sums;
    int k;
};

template <int COUNT>
inline void store(const __m512 (&acc)[COUNT][TILE_LANES], float *out) {
    for (int r = 0; r < COUNT; r++) {
        for (int j = 0; j < TILE_LANES; j++) _mm512_store_ps(out + r * TILE + j * LANES, acc[r][j]);
    }
}

template <int COUNT, int FETCH>
void multiply_fp32(const Rows &rows, const uint8_t *tile, const uint8_t *upcoming, float *out) {
    __m512 acc[COUNT][TILE_LANES] = {};
    for (int step = 0; step < rows.k; step++, tile += 4 * TILE, upcoming += 4 * TILE) {
        if (step % FETCH_STEPS == 0) fetch<FETCH>(upcoming);
        const float *weights = reinterpret_cast<const float *>(tile);
        __m512 w[TILE_LANES];
        for (int j = 0; j < TILE_LANES; j++) w[j] = _mm512_load_ps(weights + j * LANES);
        for (int r = 0; r < COUNT; r++) {
            __m512 a = _mm512_castsi512_ps(
                _mm512_set1_epi32(load_int(rows.data + r * rows.stride + 4 * step)));
            for (int j = 0; j < TILE_LANES; j++) acc[r][j] = _mm512_fmadd_ps(a, w[j], acc[r][j]);
        }
    }
    store<COUNT>(acc, out);
}

template <int COUNT, int FETCH>
void multiply_bf16(const Rows &rows, const uint8_t *tile, const uint8_t *upcoming, float *out) {
    __m512 acc[COUNT][TILE_LANES] = {};
    for (int step = 0; 2 * step < rows.k; step++, tile += 4 * TILE, upcoming += 4 * TILE) {
        if (step % FETCH_STEPS == 0) fetch<FETCH>(upcoming);
        __m512i w[TILE_LANES];
        for (int j = 0; j < TILE_LANES; j++) w[j] = _mm512_load_si512(tile + 64 * j);
        for (int r = 0; r < COUNT; r++) {
            __m512i a = _mm512_set1_epi32(load_int(rows.data + r * rows.stride + 4 * step));
            for (int j = 0; j < TILE_LANES; j++) acc[r][j] = dot_pairs(acc[r][j], a, w[j]);
        }
    }
    store<COUNT>(acc, out);
}

// Four inputs of sixteen columns as unsigned quads; int4 has two quads in each byte vector.
template <Format FORMAT>
inline __m512i load_quad(const uint8_t *block, int quad, int lane_group) {
    if (FORMAT == Format::int8) return _mm512_load_si512(block + quad * 4 * TILE + 64 * lane_group);
    __m512i both = _mm512_load_si512(block + quad / 2 * 4 * TILE + 64 * lane_group);
    if (quad % 2) both = _mm512_srli_epi16(both, 4);
    return _mm512_and_si512(both, _mm512_set1_epi8(0x0f));
}

// dots[r][j] += the integer products of one block.
template <Format FORMAT, int COUNT, int FETCH>
inline void dot_block(const uint8_t *block, const uint8_t *bytes, size_t stride,
                      const uint8_t *upcoming, __m512i (&dots)[COUNT][TILE_LANES]) {
    constexpr int QUADS = FORMAT == Format::int8 ? FETCH_STEPS : 2 * FETCH_STEPS;
#pragma GCC unroll 4
    for (int quad = 0; quad < BLOCK / 4; quad++) {
        if (quad % QUADS == 0) fetch<FETCH>(upcoming + quad / QUADS * 64 * FETCH_LINES);
        __m512i w[TILE_LANES];
        for (int j = 0; j < TILE_LANES; j++) w[j] = load_quad<FORMAT>(block, quad, j);
        for (int r = 0; r < COUNT; r++) {
            __m512i a = _mm512_set1_epi32(load_int(bytes + r * stride + quad * 4));
            for (int j = 0; j < TILE_LANES; j++) dots[r][j] = dot_quads(dots[r][j], w[j], a);
        }
    }
}

inline __m512 load_halves(const uint8_t *from) {
    return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i *>(from)));
}

template <Format FORMAT, int COUNT, int FETCH>
void multiply_blocks(const Rows &rows, const uint8_t *tile, const uint8_t *upcoming, float *out) {
    const int blocks = block_count(rows.k);
    __m512 acc[COUNT][TILE_LANES] = {};
    for (int block = 0; block < blocks; block++) {
        const BlockPlace<FORMAT> place(block);
        if (FETCH && block % 2 == 0) fetch<place.HEAD / 64>(upcoming + place.scales);
        const float *row_scales = rows.scales + block, *row_sums = rows.sums + block;
        __m512i dots[COUNT][TILE_LANES];
        for (int r = 0; r < COUNT; r++) {
            int start = FORMAT == Format::int8 ? load_int(row_sums + r * blocks) : 0;
            for (int j = 0; j < TILE_LANES; j++) dots[r][j] = _mm512_set1_epi32(start);
        }
        dot_block<FORMAT, COUNT, FETCH>(tile + place.quants, rows.data + block * BLOCK, rows.stride,
                                        upcoming + place.quants, dots);
        for (int j = 0; j < TILE_LANES; j++) {
            __m512 scale = load_halves(tile + place.scales + j * LANES * sizeof(uint16_t));
            for (int r = 0; r < COUNT; r++) {
                __m512 dot = _mm512_mul_ps(_mm512_cvtepi32_ps(dots[r][j]), scale);
                acc[r][j] = _mm512_fmadd_ps(dot, _mm512_set1_ps(row_scales[r * blocks]), acc[r][j]);
            }
            if (FORMAT == Format::int8) continue;
            __m512 minimum = load_halves(tile + place.minima + j * LANES * sizeof(uint16_t));
            for (int r = 0; r < COUNT; r++) {
                acc[r][j] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(row_sums[r * blocks]),
                                            acc[r][j]);
            }
        }
    }
    store<COUNT>(acc, out);
}

template <int COUNT, int FETCH>
constexpr auto multiply_int8 = multiply_blocks<Format::int8, COUNT, FETCH>;
template <int COUNT, int FETCH>
constexpr auto multiply_int4 = multiply_blocks<Format::int4, COUNT, FETCH>;

using Kernel = void (*)(const Rows &, const uint8_t *, const uint8_t *, float *);

#define EACH(kernel, rows)                                                              \
    {kernel<rows, 0>, kernel<rows, 1>, kernel<rows, 2>, kernel<rows, 3>, nullptr, nullptr, \
     kernel<rows, 6>}
#define TO_4(kernel) EACH(kernel, 1), EACH(kernel, 2), EACH(kernel, 3), EACH(kernel, 4)
#define TO_8(kernel) \
    TO_4(kernel), EACH(kernel, 5), EACH(kernel, 6), EACH(kernel, 7), EACH(kernel, 8)
constexpr Kernel KERNELS[4][ROWS][FETCH_LINES + 1] = {
    {TO_8(multiply_fp32)}, {TO_8(multiply_bf16)}, {TO_4(multiply_int8)}, {TO_4(multiply_int4)}};
#undef TO_8
#undef TO_4
#undef EACH

}  // namespace

void multiply(const Matrix &matrix, const Operand &operand, int row, int count, int tile,
              const Upcoming &upcoming, float *out) {
    size_t first = static_cast<size_t>(row) * block_count(matrix.k);
    Rows rows{operand.data.as<uint8_t>() + row * operand.stride, operand.stride,
              operand.scales.as<float>() + first, operand.sums.as<float>() + first, matrix.k};
    Kernel kernel = KERNELS[static_cast<int>(matrix.format)][count - 1][upcoming.lines];
    kernel(rows, matrix.tile(tile), upcoming.tile, out);
}
