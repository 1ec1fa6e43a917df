#include "draft_head/draft_head.h"

#include <algorithm>

#include "forward/model.h"
#include "forward/rows.h"
#include "sampling/logprobs.h"

namespace {

constexpr float EPSILON = 1e-5f;

int width(int columns) { return round_up(columns, TILE); }

float *row_of(const Memory &rows, int row, int columns) {
    return rows.as<float>() + static_cast<size_t>(row) * width(columns);
}

}  // namespace

// Every stage for all rows.
struct DraftHeadStep : Job {
    DraftHead &of;
    const DraftHeadRow *rows;
    int row_count, count;
    enum Stage { INPUT, GATE, PUT, DOWN, NEXT, HEAD, REPORT };

    DraftHeadStep(DraftHead &of, const DraftHeadRow *rows, int row_count, int count)
        : of(of), rows(rows), row_count(row_count), count(count) {}

    int open(int stage) override {
        switch (stage) {
            case INPUT: return each(&DraftHeadStep::put_input);
            case GATE: return of.matrices_[DraftHead::GATE_UP].tiles / 2;
            case PUT: return each(&DraftHeadStep::put);
            case DOWN: return of.matrices_[DraftHead::DOWN].tiles;
            case NEXT: return each(&DraftHeadStep::finish);
            case HEAD: return of.matrices_[DraftHead::HEAD].tiles;
            case REPORT: return row_count;
            default: return -1;
        }
    }

    void run(int stage, int item, int) override {
        switch (stage) {
            case GATE: return multiply_gate(item);
            case DOWN: return multiply_down(item);
            case HEAD: return multiply_head(item);
            default: return report_row(item);
        }
    }

    // Few rows: the thread that ended the stage before does them all.
    int each(void (DraftHeadStep::*work)(int)) {
        for (int row = 0; row < row_count; row++) (this->*work)(row);
        return 0;
    }

    void put_input(int row) {
        alignas(64) float values[2 << 14], token[1 << 14];
        const int hidden = of.hidden_;
        size_t begin = static_cast<size_t>(rows[row].token) * hidden;
        if (of.model_) of.model_->embed(rows[row].token, token);
        for (int i = 0; i < hidden && !of.model_; i++) {
            token[i] = of.embedding_is_bf16_
                           ? widen(static_cast<const bf16 *>(of.embedding_)[begin + i])
                           : static_cast<const float *>(of.embedding_)[begin + i];
        }
        rms_norm<false>(rows[row].state, of.vectors_[DraftHead::STATE_NORM].data(), hidden, EPSILON,
                         values);
        rms_norm<false>(token, of.vectors_[DraftHead::TOKEN_NORM].data(), hidden, EPSILON,
                         values + hidden);
        of.input_.put_row(row, values);
    }

    // Calls `each(row, 48 results)` for all rows of one tile.
    template <class Each>
    void products(const Matrix &matrix, const Operand &operand, int tile, Each each) {
        alignas(64) float out[ROWS_MAX * TILE];
        int at_once = rows_at_once(matrix.format);
        for (int first = 0; first < row_count; first += at_once) {
            int rows_now = std::min(at_once, row_count - first);
            multiply(matrix, operand, first, rows_now, tile, {}, out);
            for (int r = 0; r < rows_now; r++) each(first + r, out + r * TILE);
        }
    }

    float *gate(int row) { return row_of(of.gate_, row, of.inner_); }
    float *next(int row) { return row_of(of.next_, row, of.hidden_); }
    float *logits(int row) { return row_of(of.logits_, row, of.vocab()); }
    void multiply_gate(int pair) {
        const Matrix &matrix = of.matrices_[DraftHead::GATE_UP];
        products(matrix, of.input_, 2 * pair, [&](int row, const float *out) {
            std::copy_n(out, TILE, gate(row) + pair * TILE);
        });
        products(matrix, of.input_, 2 * pair + 1, [&](int row, const float *up) {
            float *g = gate(row) + pair * TILE;
            activated_and_mul<false, silu>(g, up, TILE, g);
        });
    }

    void put(int row) { of.gated_.put_row(row, gate(row)); }

    void multiply_down(int tile) {
        products(of.matrices_[DraftHead::DOWN], of.gated_, tile, [&](int row, const float *out) {
            std::copy_n(out, TILE, next(row) + tile * TILE);
        });
    }

    void finish(int row) {
        float *values = next(row);
        const std::vector<float> &keep = of.vectors_[DraftHead::KEEP];
        for (int i = 0; i < of.hidden_; i++) values[i] += keep[i] * rows[row].state[i];
        rms_norm<false>(values, of.vectors_[DraftHead::NORM].data(), of.hidden_, EPSILON,
                         rows[row].next);
        of.last_.put_row(row, rows[row].next);
    }

    void multiply_head(int tile) {
        products(of.matrices_[DraftHead::HEAD], of.last_, tile, [&](int row, const float *out) {
            std::copy_n(out, TILE, logits(row) + tile * TILE);
        });
    }

    void report_row(int row) {
        double unused;
        report({logits(row), 0, count, &unused, rows[row].best, rows[row].logprobs}, of.vocab());
        for (int i = 0; i < count; i++) rows[row].best[i] = of.vocabulary_[rows[row].best[i]];
    }
};

DraftHead::DraftHead(Pool &pool, int hidden, int inner, const std::vector<int32_t> &vocabulary,
                     const void *embedding, bool embedding_is_bf16)
    : pool_(pool), hidden_(hidden), inner_(inner), vocabulary_(vocabulary), embedding_(embedding),
      embedding_is_bf16_(embedding_is_bf16) {}

void DraftHead::set_matrix(int which, const std::vector<StoredPart> &parts, int k) {
    matrices_[which] = stored(pool_, parts, k, which == GATE_UP, nullptr, nullptr);
}

void DraftHead::set_vector(int which, const float *values) {
    vectors_[which].assign(values, values + hidden_);
}

void DraftHead::reserve(int rows) {
    if (rows <= room_) return;
    room_ = round_up(rows, 16);
    auto floats = [&](size_t columns) {
        size_t row_floats = width(static_cast<int>(columns));
        return Memory(room_ * row_floats * sizeof(float));
    };
    gate_ = floats(inner_);
    next_ = floats(hidden_);
    logits_ = floats(vocabulary_.size());
    input_.reserve(Format::stored, room_, 2 * hidden_);
    gated_.reserve(Format::stored, room_, inner_);
    last_.reserve(Format::stored, room_, hidden_);
}

void DraftHead::run(const DraftHeadRow *rows, int row_count, int count) {
    if (!row_count) return;
    reserve(row_count);
    DraftHeadStep job(*this, rows, row_count, count);
    pool_.run(job);
}
