// Trees of guesses of a draft head: model/guessing.py with all levels in one call.
#pragma once

#include "guesser.h"

// Mirrors `StartArguments` in library.py: where one row's guesses begin.
struct Start {
    const float *state;              // [hidden]
    uint64_t seed;
    uint32_t branch, position;       // of the token after `token`
    int32_t token;
    int32_t sampled;                 // whether there is noise
    double scale;                    // what a loss adds to a token's score
};

// Mirrors `TreeArguments` in library.py.
struct TreeShape {
    int32_t levels, looked, best, expanded, open_max;
    double chance_min, loss_nats, loss_max;

    int slots() const { return 1 + expanded * (levels - 1); }
    int fields() const { return 2 + 2 * best; }
};

// Writes [rows, slots, fields] numbers: of each thought the parent's slot (-1 for the root's), the
// token, the best tokens and their losses. What was not thought is NOTHING throughout.
class Grower {
  public:
    static constexpr int32_t NOTHING = -2;

    explicit Grower(Guesser &guesser) : guesser(guesser) {}
    void grow(const Start *starts, int row_count, const TreeShape &shape, int32_t *found);

  private:
    struct Open {
        int row, parent;
        int32_t token;
        const float *state;
        double chance;
    };
    struct Candidate {
        double score;
        int32_t token, loss;
    };

    Guesser &guesser;
    std::vector<Open> level, children;
    std::vector<Candidate> ranked;
    std::vector<Guess> guesses;
    std::vector<int32_t> best;
    std::vector<double> logprobs;
    std::vector<float> states[2];    // behind the tokens of this level and of the one before

    void think(int depth, int looked);
    void rank(const Start &start, int depth, const TreeShape &shape, int place, int looked);
    void open(const Open &one, int slot, const float *state, const TreeShape &shape);
    void keep(size_t first, int most);
    void thin(size_t most);
};
