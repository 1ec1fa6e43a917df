// A draft head: a small recurrent network that drafts from the target's last hidden state. The
// arithmetic is that of model/draft_head/head.py, with matrices in stored blocks, whose kind
// model/native/draft_head.py says.
#pragma once

#include <vector>

#include "matrix/stored.h"
#include "threads/pool.h"

struct Model;

// What a token after a state comes to.
struct DraftHeadRow {
    const float *state;              // [hidden]
    int32_t token;                   // the one after the state
    float *next;                     // [hidden], the state after the token
    int32_t *best;                   // [count] tokens, best first
    double *logprobs;                // [count]
};

class DraftHead {
  public:
    DraftHead(Pool &pool, int hidden, int inner, const std::vector<int32_t> &vocabulary,
              const void *embedding, bool embedding_is_bf16);
    // Of one part, or of gate and up.
    void set_matrix(int which, const std::vector<StoredPart> &parts, int k);
    // Has tokens embedded by a model whose embedding is stored.
    void use_model(const Model *model) { model_ = model; }
    void set_vector(int which, const float *values);
    // One step of all rows: the states after their tokens, and the `count` best next tokens.
    void run(const DraftHeadRow *rows, int row_count, int count);
    int hidden() const { return hidden_; }
    int vocab() const { return static_cast<int>(vocabulary_.size()); }

  private:
    friend struct DraftHeadStep;
    enum { GATE_UP, DOWN, HEAD };
    enum { KEEP, STATE_NORM, TOKEN_NORM, NORM };

    Pool &pool_;
    int hidden_, inner_;
    std::vector<int32_t> vocabulary_;
    const void *embedding_;          // [all tokens, hidden], the caller's
    bool embedding_is_bf16_;
    const Model *model_ = nullptr;   // that embeds tokens instead
    Matrix matrices_[3];
    std::vector<float> vectors_[4];
    // Of the rows at hand, grown to the most seen.
    int room_ = 0;
    Operand input_, gated_, last_;
    Memory gate_, next_, logits_;

    void reserve(int rows);
};
