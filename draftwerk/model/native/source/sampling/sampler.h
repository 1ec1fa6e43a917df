// The sampling rule of speculative/sampling.py, the same token to the last bit, over many rows.
//
// What is exact is double and costs time per candidate; what is fast is float and only decides,
// with a margin, which tokens need not be candidates. Where a margin cannot decide (a nucleus
// whose border falls within it), the row is done again by the reference's own arithmetic.
#pragma once

#include <vector>

#include "sampling/philox.h"

// What a token is sampled of.
struct SamplingRequest {
    const float *logits;
    const int64_t *edit_tokens;      // with rates, losses and biases: model/edits.py
    const double *edit_rates, *edit_losses, *edit_biases;
    const uint32_t *allowed;         // a bit per token, or null
    double temperature, top_p, min_p;
    uint64_t seed;
    uint32_t branch, position;
    int32_t top_k, edit_count;
};

struct Candidate {
    double score;                    // scaled by temperature
    double weight;                   // e**(score - best), where it is needed
    int token;
};

inline bool better(const Candidate &a, const Candidate &b) {
    return a.score != b.score ? a.score > b.score : a.token < b.token;
}

// Tokens whose raw scores the row's history changed are taken out of the float logits.
class Chooser {
  public:
    // Returns the token; `vocab` logits a row.
    int choose(const SamplingRequest &request, int vocab);

  private:
    struct Survey;
    void edit();
    int greedy() const;
    Survey survey() const;
    void collect(double cut_nats);
    void collect_window();
    void keep_top_k();
    bool keep_nucleus(const Survey &survey);
    void keep_nucleus_exactly();
    int winner_of_candidates() const;
    int winner_of_all() const;
    double score(float logit) const { return static_cast<double>(logit) / request_->temperature; }
    double score(int token) const { return score(logits_[token]); }
    float weight_base() const { return static_cast<float>(best_ * request_->temperature); }

    const SamplingRequest *request_ = nullptr;
    int vocab_ = 0;
    const float *logits_ = nullptr;
    std::vector<float> edited_;
    std::vector<Candidate> extras_;  // edited tokens: raw scores, then scaled
    std::vector<Candidate> candidates_;
    double best_ = 0, floor_ = 0;    // scaled
};
