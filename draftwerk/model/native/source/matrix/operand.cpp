// Activations on their way into a matrix product.
#include "matrix/stored.h"

namespace {

size_t element_bytes(Format format) {
    return format == Format::fp32 ? sizeof(float) : sizeof(PairElement);
}

}  // namespace

void Operand::reserve(Format new_format, int rows, int new_k) {
    format = new_format;
    k = new_k;
    // Beyond k are zeros, to the end of the largest unit; and a group more, or else the rows of a
    // tile would be a multiple of pages apart, and in one set of the cache.
    stride = elementwise() ? static_cast<size_t>(round_up(k, 64)) * element_bytes(format)
                           : (static_cast<size_t>(round_up(k, 256)) / BLOCK + 1) * sizeof(StoredGroup);
    data = Memory(rows * stride);
}

void Operand::put_row(int row, const float *values) {
    if (elementwise()) return put_columns(row, 0, k, values);
    uint8_t *to = data.as<uint8_t>() + row * stride;
    put_stored_row(values, k, reinterpret_cast<StoredGroup *>(to));
}

void Operand::copy_row(int row, const Operand &from, int from_row) {
    memcpy(data.as<uint8_t>() + row * stride, from.data.as<uint8_t>() + from_row * stride, stride);
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
