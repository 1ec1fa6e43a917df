#pragma once

#include <cstdint>

// Asks for a token's log-probability under the raw logits, and the `count` best alternatives.
struct LogprobRequest {
    const float *logits;
    int32_t token, count;
    double *logprob;
    int32_t *top_tokens;             // [count]
    double *top_logprobs;            // [count]
};

void report(const LogprobRequest &request, int vocab);
