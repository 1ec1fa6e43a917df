// Activations on their way into a matrix product.
#include "matrix.h"

namespace {

size_t element_bytes(Format format) {
    if (format == Format::fp32) return 4;
    return format == Format::bf16 ? 2 : 1;
}

__m512 load(const float *values, int begin, int k) {
    return _mm512_maskz_loadu_ps(lanes_below(k - begin), values + begin);
}

float largest(const float *values, int begin, int end) {
    __m512 best = _mm512_setzero_ps();
    for (int i = begin; i < end; i += LANES) {
        best = _mm512_max_ps(best, _mm512_abs_ps(load(values, i, end)));
    }
    return _mm512_reduce_max_ps(best);
}

void put_blocks(Format format, const float *values, int k, uint8_t *bytes, float *scales,
                float *sums) {
    for (int begin = 0, block = 0; begin < k; begin += BLOCK, block++) {
        int end = begin + BLOCK < k ? begin + BLOCK : k;
        float scale = largest(values, begin, end) / 127.0f;
        __m512 inverse = _mm512_set1_ps(scale > 0 ? 1.0f / scale : 0.0f);
        __m512i total = _mm512_setzero_si512();
        for (int i = begin; i < begin + BLOCK; i += LANES) {
            __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(load(values, i, end), inverse));
            total = _mm512_add_epi32(total, q);
            _mm_storeu_si128(reinterpret_cast<__m128i *>(bytes + i), _mm512_cvtsepi32_epi8(q));
        }
        int sum = _mm512_reduce_add_epi32(total), offset = -128 * sum;
        scales[block] = scale;
        sums[block] = scale * static_cast<float>(sum);
        if (format == Format::int8) memcpy(&sums[block], &offset, sizeof offset);
    }
}

}  // namespace

void Operand::reserve(Format new_format, int rows, int new_k) {
    format = new_format;
    k = new_k;
    stride = static_cast<size_t>(round_up(k, 64)) * element_bytes(format);
    data = Memory(rows * stride);
    if (elementwise()) return;
    size_t blocks = rows * static_cast<size_t>(block_count(k));
    scales = Memory(blocks * sizeof(float));
    sums = Memory(blocks * sizeof(float));
}

void Operand::put_row(int row, const float *values) {
    if (elementwise()) return put_columns(row, 0, k, values);
    size_t block = static_cast<size_t>(row) * block_count(k);
    put_blocks(format, values, k, data.as<uint8_t>() + row * stride, scales.as<float>() + block,
               sums.as<float>() + block);
}

void Operand::put_columns(int row, int begin, int count, const float *values) {
    uint8_t *bytes = data.as<uint8_t>() + row * stride;
    for (int i = 0; i < count; i += LANES) {
        __mmask16 mask = lanes_below(count - i);
        __m512 value = _mm512_maskz_loadu_ps(mask, values + i);
        if (format == Format::fp32) {
            _mm512_mask_storeu_ps(reinterpret_cast<float *>(bytes) + begin + i, mask, value);
        } else {
            _mm256_mask_storeu_epi16(reinterpret_cast<bf16 *>(bytes) + begin + i, mask,
                                     narrow(value));
        }
    }
}
