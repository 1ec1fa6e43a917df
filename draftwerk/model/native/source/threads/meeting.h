// Where the ranks of one machine put together the columns that each computed: memory they all map.
//
//     | arrivals, sleepers, lost | ... 4096 | buffer 0 | buffer 1 |
//
// A rank writes its columns into one buffer, waits until all have, and reads the others'. The next
// time it takes the other buffer: a rank that meets again has read the one before.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

// Columns first .. first + count.
struct Span {
    int32_t first, count;
};

// Rows of which each rank has some columns; the stride is in elements.
struct Columns {
    float *data;
    size_t stride;
    int columns;
    const int32_t *rows = nullptr;       // where each row stands; null: one behind another

    float *row(int number) const { return data + (rows ? rows[number] : number) * stride; }
};

class Meeting {
  public:
    // `memory` is zeroed, of `bytes`, and outlives this. One that only gives reads nothing.
    Meeting(void *memory, int64_t bytes, int ranks, bool only_gives);

    // Gives `own` columns of the rows and takes all others; returns false once a rank is lost.
    bool gather(const Columns &matrix, int rows, Span own);
    // Nobody waits any longer, here or in other processes.
    void give_up();
    bool is_lost() const { return state_->lost.load(std::memory_order_acquire) != 0; }

    static constexpr int64_t HEAD_BYTES = 4096;

  private:
    struct State {
        alignas(64) std::atomic<uint32_t> arrivals;
        alignas(64) std::atomic<uint32_t> sleepers;
        alignas(64) std::atomic<uint32_t> lost;
    };
    bool meet();

    State *state_;
    float *buffers_[2];
    int64_t buffer_floats_;
    uint32_t ranks_, expected_ = 0;
    bool only_gives_;
    int turn_ = 0;
};
