#include "logprobs.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "sampler.h"
#include "scan.h"

void report(const LogprobAsk &ask, int vocab) {
    float best = largest(ask.logits, vocab);
    Weights weights{_mm512_set1_ps(best), _mm512_set1_ps(1.0f)};
    for (int i = 0; i < vocab; i += LANES) {
        __mmask16 mask = lanes_below(vocab - i);
        weights.add(weights.of(
            _mm512_mask_loadu_ps(_mm512_set1_ps(MINUS_INFINITY), mask, ask.logits + i)));
    }
    double total = best + std::log(weights.total());
    *ask.logprob = ask.logits[ask.token] - total;
    std::vector<Candidate> top;
    float least = MINUS_INFINITY;
    for (int i = 0; i < vocab && ask.count > 0; i += LANES) {
        __mmask16 mask = lanes_below(vocab - i);
        __m512 logits = _mm512_maskz_loadu_ps(mask, ask.logits + i);
        bool full = static_cast<int>(top.size()) == ask.count;
        if (full) mask = _mm512_mask_cmp_ps_mask(mask, logits, _mm512_set1_ps(least), _CMP_GT_OQ);
        for (; mask; mask &= mask - 1) {
            int token = i + __builtin_ctz(mask);
            Candidate one{ask.logits[token], 0, token};
            top.insert(std::upper_bound(top.begin(), top.end(), one, better), one);
            if (static_cast<int>(top.size()) > ask.count) top.pop_back();
            least = static_cast<float>(top.back().score);
        }
    }
    for (size_t i = 0; i < top.size(); i++) {
        ask.top_tokens[i] = top[i].token;
        ask.top_logprobs[i] = top[i].score - total;
    }
}
