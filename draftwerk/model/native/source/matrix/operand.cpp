// Activations on their way into a matrix product.
#include "matrix/stored.h"

namespace {

size_t element_bytes(Format format) {
    if (format == Format::fp32) return sizeof(float);
    return format == Format::bf16 ? sizeof(PairElement) : 1;
}

float largest(const float *values, int begin, int end) {
    Floats most = broadcast(0.0f);
    for (int i = begin; i < end; i += LANES) {
        most = max(most, absolute(load_first(values + i, end - i)));
    }
    return reduce_max(most);
}

void put_blocks(Format format, const float *values, int k, uint8_t *bytes, float *scales,
                float *sums) {
    for (int begin = 0, block = 0; begin < k; begin += BLOCK, block++) {
        int end = begin + BLOCK < k ? begin + BLOCK : k;
        float most = largest(values, begin, end);
        float scale = most < TINY ? 0.0f : most / 127.0f;
        Floats inverse = broadcast(scale > 0 ? 1.0f / scale : 0.0f);
        Ints total = broadcast(0);
        for (int i = begin; i < begin + BLOCK; i += LANES) {
            Ints q = to_ints(load_first(values + i, end - i) * inverse);
            total = total + q;
            store_bytes(bytes + i, q, LANES);
        }
        int sum = reduce_add(total), offset = -native::WEIGHT_OFFSET * sum;
        scales[block] = scale;
        sums[block] = scale * static_cast<float>(sum);
        if (format == Format::int8) memcpy(&sums[block], &offset, sizeof offset);
    }
}

}  // namespace

void Operand::reserve(Format new_format, int rows, int new_k) {
    format = new_format;
    k = new_k;
    if (format == Format::stored) {
        // Beyond k are zeros, to the end of the largest unit; and a group more, or else the rows of
        // a tile would be a multiple of pages apart, and in one set of the cache.
        stride = (static_cast<size_t>(round_up(k, 256)) / BLOCK + 1) * sizeof(StoredGroup);
        data = Memory(rows * stride);
        return;
    }
    stride = static_cast<size_t>(round_up(k, 64)) * element_bytes(format);
    data = Memory(rows * stride);
    if (elementwise()) return;
    size_t blocks = rows * static_cast<size_t>(block_count(k));
    scales = Memory(blocks * sizeof(float));
    sums = Memory(blocks * sizeof(float));
}

void Operand::put_row(int row, const float *values) {
    if (elementwise()) return put_columns(row, 0, k, values);
    if (format == Format::stored) {
        uint8_t *to = data.as<uint8_t>() + row * stride;
        return put_stored_row(values, k, reinterpret_cast<StoredGroup *>(to));
    }
    size_t block = static_cast<size_t>(row) * block_count(k);
    put_blocks(format, values, k, data.as<uint8_t>() + row * stride, scales.as<float>() + block,
               sums.as<float>() + block);
}

void Operand::copy_row(int row, const Operand &from, int from_row) {
    memcpy(data.as<uint8_t>() + row * stride, from.data.as<uint8_t>() + from_row * stride, stride);
    if (elementwise() || format == Format::stored) return;
    size_t blocks = block_count(k), to = row * blocks, begin = from_row * blocks;
    memcpy(scales.as<float>() + to, from.scales.as<float>() + begin, blocks * sizeof(float));
    memcpy(sums.as<float>() + to, from.sums.as<float>() + begin, blocks * sizeof(float));
}

void Operand::put_columns(int row, int begin, int count, const float *values) {
    uint8_t *bytes = data.as<uint8_t>() + row * stride;
    for (int i = 0; i < count; i += LANES) {
        Floats value = without_tiny(load_first(values + i, count - i));
        if (format == Format::fp32) {
            store_first(reinterpret_cast<float *>(bytes) + begin + i, value, count - i);
        } else {
            store_pairs(reinterpret_cast<PairElement *>(bytes) + begin + i, value, count - i);
        }
    }
}
