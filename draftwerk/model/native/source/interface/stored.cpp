// One stored matrix by itself: for tests, for measuring, and on its way into a model.
#include <ctime>

#include <algorithm>
#include <cstring>

#include "matrix/stored.h"

namespace {

double thread_seconds() {
    timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void read_once(const Matrix &matrix) {
    native::Ints sums[4] = {};
    const uint8_t *at = matrix.stored.front().data;
    const uint8_t *end = matrix.stored.back().data + matrix.bytes_of(matrix.tiles - 1);
    constexpr size_t BYTES = sizeof(native::Ints);
    for (; at + 4 * BYTES <= end; at += 4 * BYTES) {
        for (size_t j = 0; j < 4; j++) {
            sums[j] = native::bit_xor(sums[j], native::load_ints(at + j * BYTES));
        }
    }
    for (auto &sum : sums) asm volatile("" : : DRAFTWERK_REGISTER(sum));
}

// Calls `each(first row, rows, tile, results)` for all products with rows of the operand.
template <class Each>
void multiply_all(const Matrix &matrix, const Operand &operand, int rows, Each each) {
    const int at_once = rows_at_once(Format::stored);
    for (int tile = 0; tile < matrix.tiles; tile++) {
        Upcoming next;
        if (tile + 1 < matrix.tiles) next = {matrix.tile(tile + 1), FETCH_LINES, true};
        const int passes = (rows + at_once - 1) / at_once;
        for (int pass = 0; pass < passes; pass++) {
            alignas(64) float out[ROWS_MAX * TILE];
            int row = rows * pass / passes, count = rows * (pass + 1) / passes - row;
            multiply(matrix, operand, row, count, tile, next.share(pass, passes), out);
            each(row, count, matrix.stored[tile], out);
        }
    }
}

Operand operand_of(const float *inputs, int rows, int k) {
    Operand operand;
    operand.reserve(Format::stored, rows, k);
    for (int row = 0; row < rows; row++) {
        operand.put_row(row, inputs + static_cast<size_t>(row) * k);
    }
    return operand;
}

struct Quantising : Job {
    Kind kind;
    const void *data;               // [rows][k]
    bool is_bf16;
    int rows, k;
    size_t row_bytes;
    uint8_t *blocks;

    int open(int stage) override { return stage == 0 && rows ? rows : -1; }
    void run(int, int row, int) override {
        const size_t begin = static_cast<size_t>(row) * k;
        std::vector<float> widened(is_bf16 ? k : 0);
        for (size_t i = 0; i < widened.size(); i++) {
            widened[i] = widen(static_cast<const bf16 *>(data)[begin + i]);
        }
        const float *values = static_cast<const float *>(data) + begin;
        quantise(kind, is_bf16 ? widened.data() : values, k, blocks + row * row_bytes);
    }
};

}  // namespace

extern "C" {

void *stored_create(void *pool, const StoredPart *parts, int count, int k) {
    return new Matrix(stored(*static_cast<Pool *>(pool), {parts, parts + count}, k, false, nullptr,
                             nullptr));
}
void stored_destroy(void *matrix) { delete static_cast<Matrix *>(matrix); }

int64_t stored_matrix_bytes(int kind, int rows, int k) {
    return static_cast<int64_t>(stored_bytes(static_cast<Kind>(kind), rows, k));
}

// What a row takes in a file.
int64_t stored_file_bytes(int kind, int k) {
    return with_layout(static_cast<Kind>(kind), [&](auto of) {
        using Of = decltype(of);
        return static_cast<int64_t>(k) * Of::FILE_BYTES / Of::INPUTS;
    });
}

// products[rows][columns] of inputs[rows][k].
void stored_multiply(void *matrix, const float *inputs, int rows, float *products) {
    const Matrix &of = *static_cast<Matrix *>(matrix);
    const Operand operand = operand_of(inputs, rows, of.k);
    const size_t columns = of.stored.back().first + of.stored.back().count;
    multiply_all(of, operand, rows, [&](int row, int count, const StoredTile &tile, float *out) {
        for (int r = 0; r < count; r++) {
            std::copy_n(out + r * TILE, tile.count, products + (row + r) * columns + tile.first);
        }
    });
}

// The values of rows in the panels, as the file's format defines them.
void stored_unpack(void *matrix, int first, int count, float *values) {
    const Matrix &of = *static_cast<Matrix *>(matrix);
    for (int i = 0; i < count; i++) {
        unpack_row(of, first + i, values + static_cast<size_t>(i) * of.k);
    }
}

// The same of a file's rows.
void dequantise_rows(int kind, const uint8_t *blocks, int64_t row_bytes, int rows, int k,
                     float *values) {
    for (int row = 0; row < rows; row++) {
        dequantise(static_cast<Kind>(kind), blocks + row * row_bytes, k,
                   values + static_cast<size_t>(row) * k);
    }
}

// Rows of weights [rows][k] as blocks of Q8_0 or IQ4_NL.
void quantise_rows(void *pool, int kind, const void *data, int is_bf16, int rows, int k,
                   uint8_t *blocks) {
    Quantising quantising;
    quantising.kind = static_cast<Kind>(kind), quantising.data = data;
    quantising.is_bf16 = is_bf16 != 0, quantising.rows = rows, quantising.k = k;
    quantising.row_bytes = stored_file_bytes(kind, round_up(k, BLOCK));
    quantising.blocks = blocks;
    static_cast<Pool *>(pool)->run(quantising);
}

// This thread's processor time, in seconds, of reading the matrix once; of the products with each
// number of rows, in turns with it.
void stored_time(void *matrix, const int32_t *rows, int count, double *seconds) {
    const Matrix &of = *static_cast<Matrix *>(matrix);
    const int most = *std::max_element(rows, rows + count);
    std::vector<float> inputs(static_cast<size_t>(most) * of.k);
    for (size_t i = 0; i < inputs.size(); i++) inputs[i] = static_cast<float>(i % 251) - 125.0f;
    const Operand operand = operand_of(inputs.data(), most, of.k);
    double begun = thread_seconds();
    auto lap = [&] {
        double now = thread_seconds(), taken = now - begun;
        begun = now;
        return taken;
    };
    read_once(of);
    seconds[0] = lap();
    for (int i = 0; i < count; i++) {
        multiply_all(of, operand, rows[i], [](int, int, const StoredTile &, float *out) {
            asm volatile("" : : "r"(out) : "memory");
        });
        seconds[1 + i] = lap();
    }
}

}  // extern "C"
