#include "threads/pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "simd/amx.h"
#include "threads/floating_mode.h"

namespace {

// About 20 microseconds: longer than any gap between stages, short enough that an idle pool leaves
// its cores to the rest of the server.
constexpr int SPINS = 1000;

// Each thread takes about so many runs of even items, and then single ones.
constexpr int RUNS = 2;

int next_of(uint64_t ticket) { return static_cast<int>(ticket >> 16 & 0xffff); }
int items_of(uint64_t ticket) { return static_cast<int>(ticket & 0xffff); }

// The tag is the upper half of the ticket: the word to park on.
void *tag_address(std::atomic<uint64_t> &ticket) { return reinterpret_cast<char *>(&ticket) + 4; }

}  // namespace

Pool::Pool(int threads) : size_(threads), next_(threads) {
    for (int thread = 1; thread < threads; thread++) {
        threads_.emplace_back([this, thread] { work(thread); });
    }
}

Pool::~Pool() {
    stopping_ = true;
    publish(0);
    for (auto &thread : threads_) thread.join();
}

void Pool::run(Job &job) {
    std::lock_guard<std::mutex> only(one_job_);
    FlushDenormals flush;
    job_ = &job;
    stage_ = -1;
    advance();
    int spins = 0;
    for (uint64_t seen; items_of(seen = ticket_.load(std::memory_order_acquire)) > 0;) {
        if (take(0)) {
            spins = 0;
        } else {
            wait(seen, spins);
        }
    }
    amx::release();
}

void Pool::work(int thread) {
    FlushDenormals flush;
    int spins = 0;
    for (;;) {
        uint64_t seen = ticket_.load(std::memory_order_acquire);
        if (stopping_.load(std::memory_order_acquire)) return;
        if (take(thread)) {
            spins = 0;
        } else {
            wait(seen, spins);
        }
    }
}

bool Pool::take(int thread) {
    uint64_t ticket = ticket_.load(std::memory_order_acquire);
    while (next_of(ticket) < items_of(ticket)) {
        // Of this stage, or the ticket is another by now.
        const int count = run_of(items_of(ticket) - next_of(ticket));
        if (!ticket_.compare_exchange_weak(ticket, ticket + (static_cast<uint64_t>(count) << 16),
                                           std::memory_order_acq_rel)) {
            continue;
        }
        // Holding an item keeps the job and its stage alive.
        run_items(next_of(ticket), count, thread);
        int done = done_.fetch_add(count, std::memory_order_acq_rel) + count;
        if (done == items_of(ticket)) advance();
        return true;
    }
    return false;
}

int Pool::run_of(int left) const {
    const int shares = shares_.load(std::memory_order_relaxed);
    return shares ? std::max(1, left / shares) : 1;
}

// Where a thread's next run begins: the other threads began theirs before, and take one each first.
int Pool::next_run() const {
    const uint64_t ticket = ticket_.load(std::memory_order_relaxed);
    int next = next_of(ticket);
    for (int other = 1; other < size_; other++) next += run_of(items_of(ticket) - next);
    return next < items_of(ticket) ? next : -1;
}

void Pool::run_items(int first, int count, int thread) {
    for (int item = first, last = first + count - 1; item <= last; item++) {
        next_[thread].item = item < last ? item + 1 : next_run();
        job_->run(stage_, item, thread);
    }
}

void Pool::advance() {
    int items = 0;
    while (items == 0) items = job_->open(++stage_);
    shares_.store(items > 0 && job_->is_even(stage_) ? RUNS * size_ : 0, std::memory_order_relaxed);
    done_.store(0, std::memory_order_relaxed);
    // The last access to this pool's state: after it, a caller may already be in its next job.
    publish(items > 0 ? static_cast<uint64_t>(items) : 0);
}

void Pool::publish(uint64_t items) {
    uint64_t tag = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
    ticket_.store(tag << 32 | items);
    if (parked_.load() > 0) {
        syscall(SYS_futex, tag_address(ticket_), FUTEX_WAKE_PRIVATE, 1 << 30, nullptr, nullptr, 0);
    }
}

void Pool::wait(uint64_t seen, int &spins) {
    if (spins++ < SPINS) {
        spin_pause();
        return;
    }
    amx::release();
    // Counting ourselves before the kernel compares the tag: `publish` stores the tag, then looks
    // at the count, so one of the two always sees the other.
    parked_.fetch_add(1);
    syscall(SYS_futex, tag_address(ticket_), FUTEX_WAIT_PRIVATE,
            static_cast<uint32_t>(seen >> 32), nullptr, nullptr, 0);
    parked_.fetch_sub(1);
    spins = 0;
}
