// Trees of a draft head's candidates: model/draft_head/tree.py with all levels in one call.
#pragma once

#include "draft_head/draft_head.h"

// The root of one row's tree.
struct TreeStart {
    const float *state;              // [hidden]
    uint64_t seed;
    uint32_t branch, position;       // of the token after `token`
    int32_t token;
    int32_t sampled;                 // whether there is noise
    double scale;                    // what a loss adds to a token's score
};

// How trees grow.
struct TreeShape {
    int32_t levels, depth;           // of the layout, and those that are computed
    int32_t ranked, best, expanded, open_max;
    double chance_min, loss_nats, loss_max;

    int slots() const { return 1 + expanded * (levels - 1); }
    int fields() const { return 2 + 2 * best; }
};

// Writes the [rows, slots, fields] numbers of model/draft_head/layout.py; slots without a node are
// NOTHING throughout.
class DraftTreeBuilder {
  public:
    static constexpr int32_t NOTHING = -2;

    explicit DraftTreeBuilder(DraftHead &head) : head_(head) {}
    void build(const TreeStart *starts, int row_count, const TreeShape &shape, int32_t *nodes);

  private:
    // A node whose next tokens are not computed yet.
    struct Leaf {
        int row, parent;
        int32_t token;
        const float *state;
        double chance;               // about that of its whole path
    };
    struct Candidate {
        double score;
        int32_t token, loss;
    };

    DraftHead &head_;
    std::vector<Leaf> level_, children_;
    std::vector<Candidate> ranked_;
    std::vector<DraftHeadRow> rows_;
    std::vector<int32_t> best_;
    std::vector<double> logprobs_;
    std::vector<float> states_[2];   // behind the tokens of this level and of the one before

    void run_head(int depth, int count);
    void rank(const TreeStart &start, int depth, const TreeShape &shape, int index, int count);
    void expand(const Leaf &leaf, int slot, const float *state, const TreeShape &shape);
    void keep_best_of_row(size_t first, int most);
    void keep_best(size_t most);
};
