#include "sampling/answers.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "sampling/logprobs.h"

namespace {

// Returns the child of a node with this token, or -1.
int child_of(const DraftWalk &walk, int node, int token) {
    for (int child = node + 1; child < walk.nodes; child++) {
        if (walk.parents[child] == node && walk.tokens[child] == token) return child;
    }
    return -1;
}

struct Answers : Job {
    const LogitQuestions &asked;
    explicit Answers(const LogitQuestions &asked) : asked(asked) {}

    int open(int stage) override {
        int items = asked.walk_count + asked.ranked_count;
        return stage == 0 && items ? items : -1;
    }
    // The walks first: one may be longer than any row is to rank.
    void run(int, int item, int) override {
        if (item < asked.walk_count) {
            follow(asked.walks[item]);
        } else {
            rank(item - asked.walk_count);
        }
    }

    const float *row(int number) const {
        return asked.logits + static_cast<size_t>(number) * asked.vocab;
    }

    void follow(const DraftWalk &walk) {
        thread_local Chooser chooser;
        SamplingRequest here = walk.root;
        int node = -1;
        do {
            int number = walk.first + node + 1;
            if (asked.chosen[number] == BROKEN) return;
            here.logits = row(number);
            asked.chosen[number] = chooser.choose(here, asked.vocab);
            here.position++;
            node = child_of(walk, node, asked.chosen[number]);
        } while (node >= 0);
    }

    void rank(int index) {
        thread_local std::vector<double> logprobs;
        logprobs.resize(asked.best_count);
        double unused;
        const size_t first = static_cast<size_t>(index) * asked.best_count;
        int32_t *best = asked.best + first, *losses = asked.losses + first;
        if (asked.chosen[asked.ranked[index]] == BROKEN) {  // any tokens will do
            std::iota(best, best + asked.best_count, 0);
            std::fill_n(losses, asked.best_count, static_cast<int32_t>(asked.loss_max));
            return;
        }
        report({row(asked.ranked[index]), 0, asked.best_count, &unused, best, logprobs.data()},
               asked.vocab);
        for (int i = 0; i < asked.best_count; i++) {
            double loss = std::max(0.0, -logprobs[i] / asked.loss_nats);
            // To the nearest whole number, ties to even, as Python rounds.
            losses[i] = static_cast<int32_t>(std::nearbyint(std::min(loss, asked.loss_max)));
        }
    }
};

}  // namespace

void answer(Pool &pool, const LogitQuestions &questions) {
    Answers answers(questions);
    for (int number = 0; number < questions.rows; number++) {
        // A node's hidden state is a factor of all its logits: where it is broken, so is every one.
        questions.chosen[number] = std::isfinite(*answers.row(number)) ? UNASKED : BROKEN;
    }
    if (questions.walk_count + questions.ranked_count == 1) return answers.run(0, 0, 0);
    pool.run(answers);
}
