#include "sampler.h"

#include <algorithm>
#include <cmath>

#include "scan.h"

namespace {

constexpr double WINDOW_NATS = 30.0;
// How deep below the best a first look goes; a nucleus or top-k usually fits one of these.
constexpr double CUTS[] = {2.5, 5.0, 8.0, 12.0, 18.0};
constexpr int CUT_COUNT = 5;

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
        __m512 weight = weights.of(_mm512_mask_loadu_ps(_mm512_set1_ps(MINUS_INFINITY), mask,
                                                        logits_ + i));
        weights.add(weight);
        for (int cut = CUT_COUNT - 1; cut >= 0; cut--) {
            __mmask16 over = _mm512_cmp_ps_mask(weight, cuts[cut], _CMP_GE_OQ);
            if (!over) break;
            above[cut] = _mm512_mask_add_ps(above[cut], over, above[cut], weight);
            found.count_above[cut] += __builtin_popcount(over);
        }
    }
    found.mass = weights.total();
    for (int cut = 0; cut < CUT_COUNT; cut++) found.mass_above[cut] =
        _mm512_reduce_add_ps(above[cut]);
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
