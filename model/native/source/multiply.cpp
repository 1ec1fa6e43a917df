// The matrix products: for each format one kernel, instantiated for 1 to 8 rows.
#include "matrix.h"

namespace {

// Bytes ahead of the stream: covers the latency of memory at one core's bandwidth.
constexpr int AHEAD = 2048;

inline void prefetch(const uint8_t *from) {
    for (int line = 0; line < TILE_LANES; line++) {
        _mm_prefetch(reinterpret_cast<const char *>(from + AHEAD + 64 * line), _MM_HINT_T0);
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

template <int COUNT>
void multiply_fp32(const Matrix &, const Rows &rows, int, const uint8_t *tile, float *out) {
    __m512 acc[COUNT][TILE_LANES] = {};
    for (int step = 0; step < rows.k; step++, tile += 4 * TILE) {
        prefetch(tile);
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

template <int COUNT>
void multiply_bf16(const Matrix &, const Rows &rows, int, const uint8_t *tile, float *out) {
    __m512 acc[COUNT][TILE_LANES] = {};
    for (int step = 0; 2 * step < rows.k; step++, tile += 4 * TILE) {
        prefetch(tile);
        __m512i w[TILE_LANES];
        for (int j = 0; j < TILE_LANES; j++) w[j] = _mm512_load_si512(tile + 64 * j);
        for (int r = 0; r < COUNT; r++) {
            __m512i a = _mm512_set1_epi32(load_int(rows.data + r * rows.stride + 4 * step));
            for (int j = 0; j < TILE_LANES; j++) acc[r][j] = dot_pairs(acc[r][j], a, w[j]);
        }
    }
    store<COUNT>(acc, out);
}

template <int COUNT>
void multiply_int8(const Matrix &matrix, const Rows &rows, int index, const uint8_t *tile,
                   float *out) {
    __m512i acc[COUNT][TILE_LANES];
    for (int r = 0; r < COUNT; r++) {
        for (int j = 0; j < TILE_LANES; j++) {
            acc[r][j] = _mm512_loadu_si512(matrix.offsets.data() + index * TILE + j * LANES);
        }
    }
    for (int step = 0; 4 * step < rows.k; step++, tile += 4 * TILE) {
        prefetch(tile);
        __m512i w[TILE_LANES];
        for (int j = 0; j < TILE_LANES; j++) w[j] = _mm512_load_si512(tile + 64 * j);
        for (int r = 0; r < COUNT; r++) {
            __m512i a = _mm512_set1_epi32(load_int(rows.data + r * rows.stride + 4 * step));
            for (int j = 0; j < TILE_LANES; j++) acc[r][j] = dot_quads(acc[r][j], a, w[j]);
        }
    }
    for (int j = 0; j < TILE_LANES; j++) {
        __m512 column = _mm512_loadu_ps(matrix.scales.data() + index * TILE + j * LANES);
        for (int r = 0; r < COUNT; r++) {
            __m512 scale = _mm512_mul_ps(column, _mm512_set1_ps(rows.scales[r]));
            _mm512_storeu_ps(out + r * TILE + j * LANES,
                             _mm512_mul_ps(_mm512_cvtepi32_ps(acc[r][j]), scale));
        }
    }
}

// dots[r][j] = the integer products of one block, for lane groups first .. first + WIDE.
template <int COUNT, int WIDE>
inline void dot_block(const Rows &rows, int block, const uint8_t *packed, int first,
                      __m512i (&dots)[COUNT][WIDE]) {
    const __m512i low = _mm512_set1_epi8(0x0f);
    for (int step = 0; step < BLOCK / 8; step++, packed += 4 * TILE) {
        __m512i even[WIDE], odd[WIDE];
        for (int j = 0; j < WIDE; j++) {
            __m512i both = _mm512_load_si512(packed + 64 * (first + j));
            even[j] = _mm512_and_si512(both, low);
            odd[j] = _mm512_and_si512(_mm512_srli_epi16(both, 4), low);
        }
        for (int r = 0; r < COUNT; r++) {
            const uint8_t *bytes = rows.data + r * rows.stride + block * BLOCK + step * 8;
            __m512i a = _mm512_set1_epi32(load_int(bytes));
            __m512i b = _mm512_set1_epi32(load_int(bytes + 4));
            for (int j = 0; j < WIDE; j++) {
                dots[r][j] = dot_quads(dots[r][j], even[j], a);
                dots[r][j] = dot_quads(dots[r][j], odd[j], b);
            }
        }
    }
}

// WIDE lane groups at a time: three share each activation, but every group needs an integer and a
// float accumulator a row, and from four rows on there are registers for one group's integers.
template <int COUNT>
void multiply_int4(const Matrix &, const Rows &rows, int, const uint8_t *tile, float *out) {
    constexpr int WIDE = COUNT <= 3 ? TILE_LANES : 1;
    const int blocks = round_up(rows.k, BLOCK) / BLOCK;
    __m512 acc[COUNT][TILE_LANES] = {};
    for (int block = 0; block < blocks; block++, tile += BLOCK_BYTES) {
        for (size_t line = 0; line < BLOCK_BYTES; line += 4 * TILE) prefetch(tile + line);
        const uint16_t *scales = reinterpret_cast<const uint16_t *>(tile + TILE * BLOCK / 2);
        for (int first = 0; first < TILE_LANES; first += WIDE) {
            __m512i dots[COUNT][WIDE] = {};
            dot_block<COUNT, WIDE>(rows, block, tile, first, dots);
            for (int j = 0; j < WIDE; j++) {
                const uint16_t *at = scales + (first + j) * LANES;
                __m512 scale = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)at));
                __m512 minimum = _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(at + TILE)));
                for (int r = 0; r < COUNT; r++) {
                    size_t here = static_cast<size_t>(r) * blocks + block;
                    __m512 &sum = acc[r][first + j];
                    __m512 dot = _mm512_mul_ps(_mm512_cvtepi32_ps(dots[r][j]), scale);
                    sum = _mm512_fmadd_ps(dot, _mm512_set1_ps(rows.scales[here]), sum);
                    sum = _mm512_fmadd_ps(minimum, _mm512_set1_ps(rows.sums[here]), sum);
                }
            }
        }
    }
    store<COUNT>(acc, out);
}

using Kernel = void (*)(const Matrix &, const Rows &, int, const uint8_t *, float *);

#define FOR_ROWS(kernel) \
    {kernel<1>, kernel<2>, kernel<3>, kernel<4>, kernel<5>, kernel<6>, kernel<7>, kernel<8>}
constexpr Kernel KERNELS[4][ROWS] = {FOR_ROWS(multiply_fp32), FOR_ROWS(multiply_bf16),
                                     FOR_ROWS(multiply_int8), FOR_ROWS(multiply_int4)};
#undef FOR_ROWS

}  // namespace

void multiply(const Matrix &matrix, const Operand &operand, int row, int count, int tile,
              float *out) {
    int per_row = matrix.format == Format::int4 ? round_up(matrix.k, BLOCK) / BLOCK : 1;
    size_t first = static_cast<size_t>(row) * per_row;
    Rows rows{operand.data.as<uint8_t>() + row * operand.stride, operand.stride,
              operand.scales.as<float>() + first, operand.sums.as<float>() + first, matrix.k};
    KERNELS[static_cast<int>(matrix.format)][count - 1](matrix, rows, tile, matrix.tile(tile), out);
}
