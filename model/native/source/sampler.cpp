#include "sampler.h"

#include <algorithm>
#include <cmath>

namespace {

constexpr double WINDOW_NATS = 30.0;
// How deep below the best a first look goes; a nucleus or top-k usually fits one of these.
constexpr double CUTS[] = {2.5, 5.0, 8.0, 12.0, 18.0};
constexpr int CUT_COUNT = 5;
constexpr float MINUS_INFINITY = -INFINITY;

float largest(const float *values, int count) {
    __m512 best[4];
    for (auto &one : best) one = _mm512_set1_ps(MINUS_INFINITY);
    int i = 0;
    for (; i + 4 * LANES <= count; i += 4 * LANES) {
        for (int j = 0; j < 4; j++) {
            best[j] = _mm512_max_ps(best[j], _mm512_loadu_ps(values + i + j * LANES));
        }
    }
    for (; i < count; i += LANES) {
        __mmask16 mask = lanes_below(count - i);
        best[0] = _mm512_mask_max_ps(best[0], mask, best[0], _mm512_maskz_loadu_ps(mask, values + i));
    }
    return _mm512_reduce_max_ps(_mm512_max_ps(_mm512_max_ps(best[0], best[1]),
                                              _mm512_max_ps(best[2], best[3])));
}

int first_equal(const float *values, int count, float value) {
    for (int i = 0; i < count; i += LANES) {
        __mmask16 mask = lanes_below(count - i);
        __m512 lanes = _mm512_maskz_loadu_ps(mask, values + i);
        mask = _mm512_mask_cmp_ps_mask(mask, lanes, _mm512_set1_ps(value), _CMP_EQ_OQ);
        if (mask) return i + __builtin_ctz(mask);
    }
    return 0;
}

// e**((logit - base) * inverse) and its lanes' sum in double.
struct Weights {
    __m512 base, inverse;
    __m512d low = _mm512_setzero_pd(), high = _mm512_setzero_pd();
    __m512 of(__m512 logits) const {
        return exponential(_mm512_mul_ps(_mm512_sub_ps(logits, base), inverse));
    }
    void add(__m512 weights) {
        low = _mm512_add_pd(low, _mm512_cvtps_pd(_mm512_castps512_ps256(weights)));
        high = _mm512_add_pd(high, _mm512_cvtps_pd(_mm512_extractf32x8_ps(weights, 1)));
    }
    double total() const { return _mm512_reduce_add_pd(_mm512_add_pd(low, high)); }
};

}  // namespace

// Float estimates over the whole row: its mass, and how much and how many lie above each cut.
struct Chooser::Survey {
    double mass = 0;
    double mass_above[CUT_COUNT];
    int count_above[CUT_COUNT];
};

int Chooser::choose(const Ask &ask, int vocab) {
    ask_ = &ask, vocab_ = vocab, logits_ = ask.logits;
    extras_.clear();
    candidates_.clear();
    if (ask.edit_count || ask.allowed) edit();
    if (ask.temperature == 0) return greedy();
    best_ = score(largest(logits_, vocab));
    for (Candidate &extra : extras_) {
        extra.score /= ask.temperature;
        best_ = std::max(best_, extra.score);
    }
    floor_ = best_ - WINDOW_NATS;
    bool nucleus = ask.top_p < 1;
    if (ask.top_k == 0 && !nucleus) {
        if (ask.min_p > 0) floor_ = std::max(floor_, best_ + std::log(ask.min_p));
        return winner_of_all();
    }
    Survey found = survey();
    if (ask.top_k) {
        int cut = 0;
        while (cut < CUT_COUNT && found.count_above[cut] < ask.top_k) cut++;
        if (cut < CUT_COUNT) collect(CUTS[cut]);
        if (candidates_.size() < static_cast<size_t>(ask.top_k)) collect_window();
        keep_top_k();
        if (nucleus) keep_nucleus_exactly();
    } else if (!keep_nucleus(found)) {
        collect_window();
        keep_nucleus_exactly();
    }
    if (ask.min_p > 0) {
        double least = best_ + std::log(ask.min_p);
        candidates_.erase(std::remove_if(candidates_.begin(), candidates_.end(),
                                         [&](const Candidate &one) { return one.score < least; }),
                          candidates_.end());
    }
    return winner_of_candidates();
}

void Chooser::edit() {
    edited_.assign(logits_, logits_ + vocab_);
    auto allowed = [&](int token) {
        return !ask_->allowed || (ask_->allowed[token / 32] >> token % 32 & 1);
    };
    for (int i = 0; i < ask_->edit_count; i++) {
        int token = static_cast<int>(ask_->edit_tokens[i]);
        double logit = logits_[token], rate = ask_->edit_rates[i];
        double value = (logit > 0 ? logit / rate : logit * rate) - ask_->edit_losses[i] +
                       ask_->edit_biases[i];
        edited_[token] = MINUS_INFINITY;
        if (allowed(token)) extras_.push_back({value, 0, token});
    }
    if (ask_->allowed) {
        for (int i = 0; i < vocab_; i += LANES) {
            uint32_t word = ask_->allowed[i / 32] >> i % 32;
            __mmask16 banned = lanes_below(vocab_ - i) & static_cast<__mmask16>(~word);
            _mm512_mask_storeu_ps(edited_.data() + i, banned, _mm512_set1_ps(MINUS_INFINITY));
        }
    }
    logits_ = edited_.data();
}

int Chooser::greedy() const {
    float best = largest(logits_, vocab_);
    Candidate winner{best, 0, first_equal(logits_, vocab_, best)};
    for (const Candidate &extra : extras_) {
        // Where every float logit was taken out, token 0 only stands for minus infinity.
        if (better(extra, winner) || winner.score == MINUS_INFINITY) winner = extra;
    }
    return winner.token;
}

Chooser::Survey Chooser::survey() const {
    Weights weights{_mm512_set1_ps(weight_base()),
                    _mm512_set1_ps(static_cast<float>(1 / ask_->temperature))};
    __m512 cuts[CUT_COUNT], above[CUT_COUNT];
    Survey found;
    for (int cut = 0; cut < CUT_COUNT; cut++) {
        cuts[cut] = _mm512_set1_ps(static_cast<float>(std::exp(-CUTS[cut])));
        above[cut] = _mm512_setzero_ps();
        found.count_above[cut] = 0;
    }
    for (int i = 0; i < vocab_; i += LANES) {
        __mmask16 mask = lanes_below(vocab_ - i);
        __m512 weight = weights.of(_mm512_mask_loadu_ps(_mm512_set1_ps(MINUS_INFINITY), mask, logits_ + i));
        weights.add(weight);
        for (int cut = CUT_COUNT - 1; cut >= 0; cut--) {
            __mmask16 over = _mm512_cmp_ps_mask(weight, cuts[cut], _CMP_GE_OQ);
            if (!over) break;
            above[cut] = _mm512_mask_add_ps(above[cut], over, above[cut], weight);
            found.count_above[cut] += __builtin_popcount(over);
        }
    }
    found.mass = weights.total();
    for (int cut = 0; cut < CUT_COUNT; cut++) found.mass_above[cut] = _mm512_reduce_add_ps(above[cut]);
    return found;
}

// Every token at most `cut_nats` below the best (and perhaps a few more), with exact scores.
void Chooser::collect(double cut_nats) {
    candidates_.clear();
    double least = std::max(best_ - cut_nats * 1.001, floor_);
    double raw = least * ask_->temperature;
    __m512 threshold = _mm512_set1_ps(static_cast<float>(raw - 1e-5 * (std::fabs(raw) + 1)));
    for (int i = 0; i < vocab_; i += LANES) {
        __mmask16 mask = lanes_below(vocab_ - i);
        __m512 logits = _mm512_maskz_loadu_ps(mask, logits_ + i);
        mask = _mm512_mask_cmp_ps_mask(mask, logits, threshold, _CMP_GE_OQ);
        for (; mask; mask &= mask - 1) {
            int token = i + __builtin_ctz(mask);
            if (score(token) >= least) candidates_.push_back({score(token), 0, token});
        }
    }
    for (const Candidate &extra : extras_) {
        if (extra.score >= least) candidates_.push_back(extra);
    }
}

void Chooser::collect_window() { collect(2 * WINDOW_NATS); }

void Chooser::keep_top_k() {
    size_t count = static_cast<size_t>(ask_->top_k);
    if (candidates_.size() <= count) return;
    std::nth_element(candidates_.begin(), candidates_.begin() + count, candidates_.end(), better);
    candidates_.resize(count);
}

// The reference's own arithmetic, in its order.
void Chooser::keep_nucleus_exactly() {
    std::sort(candidates_.begin(), candidates_.end(), better);
    double total = 0, mass = 0;
    for (Candidate &one : candidates_) total += one.weight = std::exp(one.score - best_);
    double goal = ask_->top_p * total;
    for (size_t i = 0; i < candidates_.size(); i++) {
        mass += candidates_[i].weight;
        if (mass >= goal) return candidates_.resize(i + 1);
    }
}

// Keeps the nucleus (in any order) and returns true, or returns false: a sum in another order,
// and the tail's in float, cannot tell where it ends.
bool Chooser::keep_nucleus(const Survey &found) {
    int cut = 0;
    while (cut < CUT_COUNT && found.mass_above[cut] < ask_->top_p * found.mass * 1.001) cut++;
    if (cut == CUT_COUNT) return false;
    collect(CUTS[cut]);
    Weights weights{_mm512_set1_ps(weight_base()),
                    _mm512_set1_ps(static_cast<float>(1 / ask_->temperature))};
    double exact = 0, extra = 0;
    for (size_t i = 0; i < candidates_.size(); i += LANES) {
        alignas(64) float logits[LANES];
        for (size_t j = 0; j < LANES; j++) {
            bool counted = i + j < candidates_.size();
            logits[j] = counted ? logits_[candidates_[i + j].token] : MINUS_INFINITY;
        }
        weights.add(weights.of(_mm512_load_ps(logits)));
    }
    for (Candidate &one : candidates_) exact += one.weight = std::exp(one.score - best_);
    for (const Candidate &one : extras_) {
        if (one.score >= floor_) extra += std::exp(one.score - best_);
    }
    for (const Candidate &one : candidates_) {
        if (logits_[one.token] == MINUS_INFINITY) extra -= one.weight;
    }
    double tail = std::max(0.0, found.mass - weights.total()) + std::max(0.0, extra);
    double total = exact + tail, goal = ask_->top_p * total;
    double error = tail * (1e-5 + 2.5e-7 * std::fabs(best_)) + total * 1e-11;
    size_t low = 0, high = candidates_.size();
    double mass = 0;
    // Invariant: candidates before `low` are in the nucleus, those from `high` on are not needed.
    while (high - low > 1) {
        auto first = candidates_.begin() + low, last = candidates_.begin() + high;
        auto middle = first + (high - low) / 2;
        std::nth_element(first, middle, last, better);
        double half = 0;
        for (auto one = first; one != middle; ++one) half += one->weight;
        if (std::fabs(mass + half - goal) <= error) return false;
        if (mass + half > goal) {
            high = middle - candidates_.begin();
        } else {
            mass += half;
            low = middle - candidates_.begin();
        }
    }
    mass += candidates_[low].weight;
    if (mass - goal <= error) return false;
    candidates_.resize(low + 1);
    return true;
}

namespace {

// Could a token with uniform `word` and score `nats` below the leader's total win? With u the
// uniform number, it wins if -log(u) < e**nats, and -log(u) >= 1 - u.
__mmask16 may_win(__m512i word, __m512 nats) {
    __m512 rest = _mm512_cvtepu32_ps(_mm512_xor_si512(word, _mm512_set1_epi32(-1)));
    rest = _mm512_mul_ps(_mm512_add_ps(rest, _mm512_set1_ps(0.5f)), _mm512_set1_ps(0x1p-32f * 0.999f));
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
                                 [](const Candidate &a, const Candidate &b) { return better(b, a); });
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
            logits[j] = _mm512_mask_loadu_ps(_mm512_set1_ps(MINUS_INFINITY), mask, logits_ + i + j * LANES);
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
