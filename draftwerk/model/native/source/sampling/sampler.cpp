#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>

#include "simd/elementary.h"
#include "sampling/scan.h"

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

int Chooser::choose(const SamplingRequest &request, int vocab) {
    request_ = &request, vocab_ = vocab, logits_ = request.logits;
    extras_.clear();
    candidates_.clear();
    if (request.edit_count || request.allowed) edit();
    if (request.temperature == 0) return greedy();
    best_ = score(largest(logits_, vocab));
    for (Candidate &extra : extras_) {
        extra.score /= request.temperature;
        best_ = std::max(best_, extra.score);
    }
    floor_ = best_ - WINDOW_NATS;
    bool nucleus = request.top_p < 1;
    if (request.top_k == 0 && !nucleus) {
        if (request.min_p > 0) floor_ = std::max(floor_, best_ + elementary::log(request.min_p));
        return winner_of_all();
    }
    Survey found = survey();
    if (request.top_k) {
        int cut = 0;
        while (cut < CUT_COUNT && found.count_above[cut] < request.top_k) cut++;
        if (cut < CUT_COUNT) collect(CUTS[cut]);
        if (candidates_.size() < static_cast<size_t>(request.top_k)) collect_window();
        keep_top_k();
        if (nucleus) keep_nucleus_exactly();
    } else if (!keep_nucleus(found)) {
        collect_window();
        keep_nucleus_exactly();
    }
    if (request.min_p > 0) {
        double least = best_ + elementary::log(request.min_p);
        candidates_.erase(std::remove_if(candidates_.begin(), candidates_.end(),
                                         [&](const Candidate &one) { return one.score < least; }),
                          candidates_.end());
    }
    return winner_of_candidates();
}

void Chooser::edit() {
    edited_.assign(logits_, logits_ + vocab_);
    auto allowed = [&](int token) {
        return !request_->allowed || (request_->allowed[token / 32] >> token % 32 & 1);
    };
    for (int i = 0; i < request_->edit_count; i++) {
        int token = static_cast<int>(request_->edit_tokens[i]);
        double logit = logits_[token], rate = request_->edit_rates[i];
        double value = (logit > 0 ? logit / rate : logit * rate) - request_->edit_losses[i] +
                       request_->edit_biases[i];
        edited_[token] = MINUS_INFINITY;
        if (allowed(token)) extras_.push_back({value, 0, token});
    }
    if (request_->allowed) {
        for (int i = 0; i < vocab_; i += LANES) {
            Mask allowed_lanes = mask_of(request_->allowed[i / 32] >> i % 32 & 0xffff);
            float *at = edited_.data() + i;
            Floats logits = load_first(at, vocab_ - i);
            store_first(at, select(allowed_lanes, logits, broadcast(MINUS_INFINITY)), vocab_ - i);
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
    Weights weights(weight_base(), static_cast<float>(1 / request_->temperature));
    Floats cuts[CUT_COUNT], above[CUT_COUNT];
    Survey found;
    for (int cut = 0; cut < CUT_COUNT; cut++) {
        cuts[cut] = broadcast(static_cast<float>(elementary::exp(-CUTS[cut])));
        above[cut] = broadcast(0.0f);
        found.count_above[cut] = 0;
    }
    for (int i = 0; i < vocab_; i += LANES) {
        Floats weight = weights.of(logits_from(logits_, i, vocab_));
        weights.add(weight);
        for (int cut = CUT_COUNT - 1; cut >= 0; cut--) {
            Mask over = at_most(cuts[cut], weight);
            uint32_t lanes = bits(over);
            if (!lanes) break;
            above[cut] = above[cut] + select(over, weight, broadcast(0.0f));
            found.count_above[cut] += __builtin_popcount(lanes);
        }
    }
    found.mass = weights.total();
    for (int cut = 0; cut < CUT_COUNT; cut++) found.mass_above[cut] = reduce_add(above[cut]);
    return found;
}

// Every token at most `cut_nats` below the best (and perhaps a few more), with exact scores.
void Chooser::collect(double cut_nats) {
    candidates_.clear();
    double least = std::max(best_ - cut_nats * 1.001, floor_);
    double raw = least * request_->temperature;
    const Floats threshold = broadcast(static_cast<float>(raw - 1e-5 * (std::fabs(raw) + 1)));
    for (int i = 0; i < vocab_; i += LANES) {
        uint32_t found = bits(at_most(threshold, load_first(logits_ + i, vocab_ - i)));
        for (found &= first_lanes(vocab_ - i); found; found &= found - 1) {
            int token = i + __builtin_ctz(found);
            if (score(token) >= least) candidates_.push_back({score(token), 0, token});
        }
    }
    for (const Candidate &extra : extras_) {
        if (extra.score >= least) candidates_.push_back(extra);
    }
}

void Chooser::collect_window() { collect(2 * WINDOW_NATS); }

void Chooser::keep_top_k() {
    size_t count = static_cast<size_t>(request_->top_k);
    if (candidates_.size() <= count) return;
    std::nth_element(candidates_.begin(), candidates_.begin() + count, candidates_.end(), better);
    candidates_.resize(count);
}

// The reference's own arithmetic, in its order.
void Chooser::keep_nucleus_exactly() {
    std::sort(candidates_.begin(), candidates_.end(), better);
    double total = 0, mass = 0;
    for (Candidate &one : candidates_) total += one.weight = elementary::exp(one.score - best_);
    double goal = request_->top_p * total;
    for (size_t i = 0; i < candidates_.size(); i++) {
        mass += candidates_[i].weight;
        if (mass >= goal) return candidates_.resize(i + 1);
    }
}

// Keeps the nucleus (in any order) and returns true, or returns false: a sum in another order,
// and the tail's in float, cannot tell where it ends.
bool Chooser::keep_nucleus(const Survey &found) {
    int cut = 0;
    while (cut < CUT_COUNT && found.mass_above[cut] < request_->top_p * found.mass * 1.001) cut++;
    if (cut == CUT_COUNT) return false;
    collect(CUTS[cut]);
    Weights weights(weight_base(), static_cast<float>(1 / request_->temperature));
    double exact = 0, extra = 0;
    for (size_t i = 0; i < candidates_.size(); i += LANES) {
        alignas(64) float logits[LANES];
        for (size_t j = 0; j < LANES; j++) {
            bool counted = i + j < candidates_.size();
            logits[j] = counted ? logits_[candidates_[i + j].token] : MINUS_INFINITY;
        }
        weights.add(weights.of(load(logits)));
    }
    for (Candidate &one : candidates_) exact += one.weight = elementary::exp(one.score - best_);
    for (const Candidate &one : extras_) {
        if (one.score >= floor_) extra += elementary::exp(one.score - best_);
    }
    for (const Candidate &one : candidates_) {
        if (logits_[one.token] == MINUS_INFINITY) extra -= one.weight;
    }
    double tail = std::max(0.0, found.mass - weights.total()) + std::max(0.0, extra);
    double total = exact + tail, goal = request_->top_p * total;
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
