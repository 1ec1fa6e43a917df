#include "matrix/packing.h"

namespace {

struct Packing : Job {
    Matrix &matrix;
    const Source &source;
    const std::vector<int> &columns;

    Packing(Matrix &matrix, const Source &source, const std::vector<int> &columns)
        : matrix(matrix), source(source), columns(columns) {}
    int open(int stage) override { return stage == 0 ? matrix.tiles : -1; }
    void run(int, int item, int) override { matrix.pack(item, source, &columns[item * TILE]); }
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

}  // namespace

Matrix packed(Pool &pool, Format format, const Source &source, int parts) {
    std::vector<int> columns = column_order(source.n, parts);
    Matrix matrix(format, static_cast<int>(columns.size()) / TILE, source.k);
    if (source.bias) matrix.bias.assign(columns.size(), 0.0f);
    Packing packing(matrix, source, columns);
    pool.run(packing);
    return matrix;
}
