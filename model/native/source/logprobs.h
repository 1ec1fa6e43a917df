#pragma once

#include <cstdint>

// A chosen token's log-probability under the raw logits, and the `count` best alternatives.
// Mirrors `LogprobArguments` in library.py.
struct LogprobAsk {
    const float *logits;
    int32_t token, count;
    double *logprob;
    int32_t *top_tokens;             // [count]
    double *top_logprobs;            // [count]
};

void report(const LogprobAsk &ask, int vocab);
