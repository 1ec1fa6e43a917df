#include "sampling/logprobs.h"

#include <algorithm>
#include <vector>

#include "simd/elementary.h"
#include "sampling/sampler.h"
#include "sampling/scan.h"

void report(const LogprobRequest &request, int vocab) {
    float best = largest(request.logits, vocab);
    Weights weights(best, 1.0f);
    for (int i = 0; i < vocab; i += LANES) {
        weights.add(weights.of(logits_from(request.logits, i, vocab)));
    }
    double total = best + elementary::log(weights.total());
    *request.logprob = request.logits[request.token] - total;
    std::vector<Candidate> top;
    float least = MINUS_INFINITY;
    for (int i = 0; i < vocab && request.count > 0; i += LANES) {
        uint32_t better_ones = first_lanes(vocab - i);
        if (static_cast<int>(top.size()) == request.count) {
            Floats logits = load_first(request.logits + i, vocab - i);
            better_ones &= bits(less(broadcast(least), logits));
        }
        for (; better_ones; better_ones &= better_ones - 1) {
            int token = i + __builtin_ctz(better_ones);
            Candidate one{request.logits[token], 0, token};
            top.insert(std::upper_bound(top.begin(), top.end(), one, better), one);
            if (static_cast<int>(top.size()) > request.count) top.pop_back();
            least = static_cast<float>(top.back().score);
        }
    }
    for (size_t i = 0; i < top.size(); i++) {
        request.top_tokens[i] = top[i].token;
        request.top_logprobs[i] = top[i].score - total;
    }
}
