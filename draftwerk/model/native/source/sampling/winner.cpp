// Which candidate wins with its noise: argmax of score + gumbel. Almost all are ruled out in float
// by their uniform number alone; the rest are compared in double.
#include <algorithm>
#include <cmath>

#include "sampling/sampler.h"
#include "sampling/scan.h"

namespace {

// Which lanes' tokens could win, with uniform `word` and score `nats` below the leader's total?
// With u the uniform number, a token wins if -log(u) < e**nats, and -log(u) >= 1 - u.
uint32_t may_win(const Ints &word, const Floats &nats) {
    Floats rest = unsigned_to_floats(word ^ broadcast(-1)) + broadcast(0.5f);
    return bits(at_most(rest * broadcast(0x1p-32f * 0.999f), exponential(nats)));
}

struct Leader {
    const Noise &noise;
    int token = -1;
    double total = -INFINITY;
    void challenge(int challenger, double score) {
        double sum = score + noise.gumbel(static_cast<uint32_t>(challenger));
        if (token < 0 || sum > total || (sum == total && challenger < token)) {
            token = challenger, total = sum;
        }
    }
};

}  // namespace

int Chooser::winner_of_candidates() const {
    if (candidates_.empty()) return 0;  // no logit is a number
    Noise noise{request_->seed, request_->branch, request_->position};
    Leader leader{noise};
    auto best = std::max_element(candidates_.begin(), candidates_.end(),
                                 [](const Candidate &a, const Candidate &b) { return better(b,
                                                                                            a); });
    leader.challenge(best->token, best->score);
    alignas(64) int32_t tokens[LANES];
    alignas(64) float nats[LANES];
    for (size_t i = 0; i < candidates_.size(); i += LANES) {
        size_t count = std::min<size_t>(LANES, candidates_.size() - i);
        for (size_t j = 0; j < LANES; j++) {
            const Candidate &one = candidates_[i + std::min(j, count - 1)];
            tokens[j] = one.token;
            nats[j] = static_cast<float>(one.score - leader.total);
        }
        Ints token = load_ints(tokens), words[4];
        noise.words(shift_right<2>(token), words);
        Ints which = token & broadcast(3), word = words[0];
        for (int w = 1; w < 4; w++) word = select(equal(which, broadcast(w)), words[w], word);
        uint32_t mask = may_win(word, load(nats)) & first_lanes(static_cast<int>(count));
        for (; mask; mask &= mask - 1) {
            const Candidate &one = candidates_[i + __builtin_ctz(mask)];
            leader.challenge(one.token, one.score);
        }
    }
    return leader.token;
}

int Chooser::winner_of_all() const {
    Noise noise{request_->seed, request_->branch, request_->position};
    Leader leader{noise};
    for (const Candidate &extra : extras_) {
        if (extra.score >= floor_) leader.challenge(extra.token, extra.score);
    }
    int first = first_equal(logits_, vocab_, largest(logits_, vocab_));
    if (score(first) >= floor_) leader.challenge(first, score(first));
    const Floats inverse = broadcast(static_cast<float>(1 / request_->temperature));
    // Lane 4 q + r counts for tokens 16 r + 4 q ..: transposed four by four, the words of 64
    // tokens come out in their order.
    static constexpr int32_t ORDER[] = {0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15};
    const Ints quads = load_ints(ORDER);
    // The largest noise is 22.9: a token further behind cannot win.
    const double reach = 23.0;
    for (int i = 0; i < vocab_; i += 4 * LANES) {
        Floats logits[4], most = broadcast(MINUS_INFINITY);
        for (int j = 0; j < 4; j++) {
            logits[j] = logits_from(logits_, i + j * LANES, vocab_);
            most = max(most, logits[j]);
        }
        double least = std::max(leader.total - reach, floor_) * request_->temperature;
        float threshold = static_cast<float>(least - 1e-5 * (std::fabs(least) + 1));
        if (!bits(at_most(broadcast(threshold), most))) continue;
        Ints words[4];
        noise.words(quads + broadcast(i / 4), words);
        transpose_quads(words[0], words[1], words[2], words[3]);
        double slack = 4e-7 * std::fabs(leader.total);
        const Floats base = broadcast(static_cast<float>(leader.total - slack));
        for (int j = 0; j < 4; j++) {
            Floats nats = logits[j] * inverse - base;
            for (uint32_t mask = may_win(words[j], nats); mask; mask &= mask - 1) {
                int token = i + j * LANES + __builtin_ctz(mask);
                if (token < vocab_ && score(token) >= floor_) leader.challenge(token, score(token));
            }
        }
    }
    return leader.token;
}
