// A draft head: what the model might think next, guessed from what it last thought. The arithmetic
// is that of model/draft_head.py, with matrices in blocks of eight bits: guesses need no more.
#pragma once

#include <vector>

#include "matrix.h"
#include "pool.h"

// Mirrors `Guess` in library.py: one row.
struct Guess {
    const float *state;              // [hidden]
    int32_t token;                   // what was said after it
    float *next;                     // [hidden], the state after the token
    int32_t *best;                   // [count] tokens, best first
    double *logprobs;                // [count]
};

class Guesser {
  public:
    Guesser(Pool &pool, int hidden, int inner, const std::vector<int32_t> &vocabulary,
            const void *embedding, bool embedding_is_bf16);
    void set_matrix(int which, const Source &source, int parts);
    void set_vector(int which, const float *values);
    void guess(const Guess *rows, int row_count, int count);
    int hidden() const { return hidden_; }
    int vocab() const { return static_cast<int>(vocabulary_.size()); }

  private:
    friend struct Guessing;
    enum { GATE_UP, DOWN, HEAD };
    enum { KEEP, STATE_NORM, TOKEN_NORM, NORM };

    Pool &pool_;
    int hidden_, inner_;
    std::vector<int32_t> vocabulary_;
    const void *embedding_;          // [all tokens, hidden], the caller's
    bool embedding_is_bf16_;
    Matrix matrices_[3];
    std::vector<float> vectors_[4];
    // Of the rows at hand, grown to the most seen.
    int room_ = 0;
    Operand seen_, gated_, last_;
    Memory gate_, next_, logits_;

    void reserve(int rows);
};
