// What a round asks of its logits at once: the way down each draft, and the best tokens of rows.
#pragma once

#include <cstdint>

#include "sampling/sampler.h"
#include "threads/pool.h"

// A draft, whose nodes' logits follow those of the root, the row's last known token.
struct DraftWalk {
    SamplingRequest root;            // what is asked of the root
    const int32_t *tokens, *parents; // [nodes], parents first; -1 is the root
    int32_t nodes, first;            // the root's row of logits
};

// What is asked of rows of logits.
struct LogitQuestions {
    const float *logits;             // [rows, vocab]
    const DraftWalk *walks;
    const int32_t *ranked;           // rows whose best tokens are wanted
    int32_t *chosen;                 // [rows]: the token, or one of the two below
    int32_t *best, *losses;          // [ranked_count, best_count]
    double loss_nats, loss_max;
    int32_t rows, vocab, walk_count, ranked_count, best_count;
};

constexpr int32_t UNASKED = -1;      // a walk never came there
constexpr int32_t BROKEN = -2;       // not finite

void answer(Pool &pool, const LogitQuestions &questions);
