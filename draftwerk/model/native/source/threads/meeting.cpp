#include "threads/meeting.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "threads/floating_mode.h"

namespace {

// About 20 microseconds, as a pool's threads: ranks of equal shares are hardly further apart.
constexpr int SPINS = 1000;
constexpr long LOOK_NS = 100'000'000;

long futex(std::atomic<uint32_t> &word, int operation, uint32_t value, const timespec *limit) {
    return syscall(SYS_futex, &word, operation, value, limit, nullptr, 0);
}

}  // namespace

Meeting::Meeting(void *memory, int64_t bytes, int ranks, bool only_gives)
    : state_(static_cast<State *>(memory)),
      buffer_floats_((bytes - HEAD_BYTES) / 2 / static_cast<int64_t>(sizeof(float))),
      ranks_(static_cast<uint32_t>(ranks)), only_gives_(only_gives) {
    auto *first = reinterpret_cast<float *>(static_cast<uint8_t *>(memory) + HEAD_BYTES);
    buffers_[0] = first, buffers_[1] = first + buffer_floats_;
}

bool Meeting::gather(const Columns &matrix, int rows, Span own) {
    const size_t columns = matrix.columns;
    const int at_once = static_cast<int>(
        std::min<int64_t>(INT_MAX, buffer_floats_ / static_cast<int64_t>(columns)));
    const int end = own.first + own.count;
    for (int from = 0; from < rows; from += at_once) {
        const int to = std::min(rows, from + at_once);
        float *buffer = buffers_[turn_ ^= 1];
        auto copied = [](float *to, const float *from, int count) {
            memcpy(to, from, count * sizeof(float));
        };
        for (int row = from; row < to; row++) {
            copied(buffer + (row - from) * columns + own.first,
                   matrix.row(row) + own.first, own.count);
        }
        if (!meet()) return false;
        for (int row = from; row < to && !only_gives_; row++) {
            const float *shared = buffer + (row - from) * columns;
            float *mine = matrix.row(row);
            copied(mine, shared, own.first);
            copied(mine + end, shared + end, matrix.columns - end);
        }
    }
    return true;
}

bool Meeting::meet() {
    expected_ += ranks_;
    uint32_t seen = state_->arrivals.fetch_add(1) + 1;
    if (seen == expected_) {
        if (state_->sleepers.load() > 0) futex(state_->arrivals, FUTEX_WAKE, INT_MAX, nullptr);
        return !is_lost();
    }
    const timespec limit{0, LOOK_NS};
    // A difference, since the number of arrivals begins again at zero one day.
    for (int spins = 0; static_cast<int32_t>(seen - expected_) < 0; seen = state_->arrivals.load()) {
        if (is_lost()) return false;
        if (spins++ < SPINS) {
            spin_pause();
            continue;
        }
        // As in Pool::wait, one of the two sees the other.
        state_->sleepers.fetch_add(1);
        futex(state_->arrivals, FUTEX_WAIT, seen, &limit);
        state_->sleepers.fetch_sub(1);
    }
    return !is_lost();
}

void Meeting::give_up() {
    state_->lost.store(1, std::memory_order_release);
    futex(state_->arrivals, FUTEX_WAKE, INT_MAX, nullptr);
}
