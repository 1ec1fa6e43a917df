#include "matrix/packing.h"

#include <atomic>
#include <new>

#include "matrix/coded.h"

namespace {

struct Packing : Job {
    Matrix &matrix;
    const Source &source;
    const std::vector<int> &columns;
    std::atomic<bool> fits{true};

    Packing(Matrix &matrix, const Source &source, const std::vector<int> &columns)
        : matrix(matrix), source(source), columns(columns) {}
    int open(int stage) override { return stage == 0 ? matrix.tiles : -1; }
    void run(int, int item, int) override {
        if (!matrix.pack(item, source, &columns[item * TILE])) fits = false;
    }
};

// Which source row each packed column holds; -1 for none.
std::vector<int> column_order(int n, int parts) {
    int size = n / parts;
    std::vector<int> columns;
    for (int begin = 0; begin < size; begin += TILE) {
        for (int which = 0; which < parts; which++) {
            for (int i = begin; i < begin + TILE; i++) {
                columns.push_back(i < size ? which * size + i : -1);
            }
        }
    }
    return columns;
}

bool pack(Pool &pool, Matrix &matrix, const Source &source, const std::vector<int> &columns) {
    Packing packing(matrix, source, columns);
    pool.run(packing);
    return packing.fits;
}

}  // namespace

Memory Arena::take(size_t size) {
    if (!base) return Memory(size);
    if (size > bytes - used) throw std::bad_alloc();
    Memory found = Memory::over(base + used, size);
    used += size;
    return found;
}

size_t packed_bytes(Format format, int n, int k, int parts) {
    int tiles = parts * ((n / parts + TILE - 1) / TILE);
    return Matrix::data_bytes(format, tiles, k);
}

Matrix packed(Pool &pool, Format format, const Source &source, int parts, Arena *arena) {
    Arena none;
    Arena &from = arena ? *arena : none;
    std::vector<int> columns = column_order(source.n, parts);
    int tiles = static_cast<int>(columns.size()) / TILE;
    const size_t room = Matrix::data_bytes(format, tiles, source.k);
    Matrix matrix(format, tiles, source.k, from.take(room));
    if (source.bias) {
        for (int column : columns) {
            matrix.bias.push_back(column < 0 ? 0.0f : source.bias[column]);
        }
    }
    auto *heading = matrix.data.as<uint8_t>();
    if (!from.is_packed && coded::fits(format, source.k)) {
        matrix.code(true);
        *heading = pack(pool, matrix, source, columns);
        if (!*heading) memset(heading, 0, matrix.used_bytes());
    }
    if (Matrix::heading_bytes(format)) matrix.code(*heading);
    if (!from.is_packed && !matrix.is_coded) pack(pool, matrix, source, columns);
    from.used -= from.base ? room - matrix.used_bytes() : 0;
    return matrix;
}
