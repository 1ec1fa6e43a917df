// Which candidate wins with its noise: argmax of score + gumbel. Almost all are ruled out in float
// by their uniform number alone; the rest are compared in double.
#include <algorithm>
#include <cmath>

#include "sampler.h"
#include "scan.h"

namespace {

// Could a token with uniform `word` and score `nats` below the leader's total win? With u the
// uniform number, it wins if -log(u) < e**nats, and -log(u) >= 1 - u.
__mmask16 may_win(__m512i word, __m512 nats) {
    __m512 rest = _mm512_cvtepu32_ps(_mm512_xor_si512(word, _mm512_set1_epi32(-1)));
    rest = _mm512_mul_ps(_mm512_add_ps(rest, _mm512_set1_ps(0.5f)),
                         _mm512_set1_ps(0x1p-32f * 0.999f));
    return _mm512_cmp_ps_mask(rest, exponential(nats), _CMP_LE_OQ);
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
    Noise noise{ask_->seed, ask_->branch, ask_->position};
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
        __m512i token = _mm512_load_si512(tokens), words[4];
        noise.words(_mm512_srli_epi32(token, 2), words);
        __m512i which = _mm512_and_si512(token, _mm512_set1_epi32(3)), word = words[0];
        for (int w = 1; w < 4; w++) {
            word = _mm512_mask_mov_epi32(word, _mm512_cmpeq_epi32_mask(which, _mm512_set1_epi32(w)),
                                         words[w]);
        }
        __mmask16 mask = may_win(word, _mm512_load_ps(nats)) & lanes_below(static_cast<int>(count));
        for (; mask; mask &= mask - 1) {
            const Candidate &one = candidates_[i + __builtin_ctz(mask)];
            leader.challenge(one.token, one.score);
        }
    }
    return leader.token;
}

int Chooser::winner_of_all() const {
    Noise noise{ask_->seed, ask_->branch, ask_->position};
    Leader leader{noise};
    for (const Candidate &extra : extras_) {
        if (extra.score >= floor_) leader.challenge(extra.token, extra.score);
    }
    int first = first_equal(logits_, vocab_, largest(logits_, vocab_));
    if (score(first) >= floor_) leader.challenge(first, score(first));
    const __m512 inverse = _mm512_set1_ps(static_cast<float>(1 / ask_->temperature));
    // Lane 4 q + r counts for tokens 16 r + 4 q ..: transposed four by four, the words of 64
    // tokens come out in their order.
    const __m512i quads = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    // The largest noise is 22.9: whoever is further behind cannot win.
    const double reach = 23.0;
    for (int i = 0; i < vocab_; i += 4 * LANES) {
        __m512 logits[4], most = _mm512_set1_ps(MINUS_INFINITY);
        for (int j = 0; j < 4; j++) {
            __mmask16 mask = lanes_below(vocab_ - i - j * LANES);
            logits[j] = _mm512_mask_loadu_ps(_mm512_set1_ps(MINUS_INFINITY), mask,
                                             logits_ + i + j * LANES);
            most = _mm512_max_ps(most, logits[j]);
        }
        double least = std::max(leader.total - reach, floor_) * ask_->temperature;
        float threshold = static_cast<float>(least - 1e-5 * (std::fabs(least) + 1));
        if (!_mm512_cmp_ps_mask(most, _mm512_set1_ps(threshold), _CMP_GE_OQ)) continue;
        __m512i w[4], t[4];
        noise.words(_mm512_add_epi32(quads, _mm512_set1_epi32(i / 4)), w);
        t[0] = _mm512_unpacklo_epi32(w[0], w[1]), t[1] = _mm512_unpackhi_epi32(w[0], w[1]);
        t[2] = _mm512_unpacklo_epi32(w[2], w[3]), t[3] = _mm512_unpackhi_epi32(w[2], w[3]);
        w[0] = _mm512_unpacklo_epi64(t[0], t[2]), w[1] = _mm512_unpackhi_epi64(t[0], t[2]);
        w[2] = _mm512_unpacklo_epi64(t[1], t[3]), w[3] = _mm512_unpackhi_epi64(t[1], t[3]);
        double slack = 4e-7 * std::fabs(leader.total);
        __m512 base = _mm512_set1_ps(static_cast<float>(leader.total - slack));
        for (int j = 0; j < 4; j++) {
            __m512 nats = _mm512_sub_ps(_mm512_mul_ps(logits[j], inverse), base);
            for (__mmask16 mask = may_win(w[j], nats); mask; mask &= mask - 1) {
                int token = i + j * LANES + __builtin_ctz(mask);
                if (token < vocab_ && score(token) >= floor_) leader.challenge(token, score(token));
            }
        }
    }
    return leader.token;
}
