// A few threads that run the stages of one job, item by item.
//
//     stage 0: items 0 .. n | stage 1: items 0 .. m | ...      a stage opens when the last is done
//
// Threads take items from one atomic word, so a thread the kernel has descheduled delays only the
// items in its hands; no thread waits for another, only for items. The thread that completes a stage
// opens the next one, alone: small serial work belongs there and costs no barrier.
//
// Where a stage's items are alike and wait for memory, a thread takes a few in line, fewer towards the end, so that it
// knows which comes next and what to fetch.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

class Job {
  public:
    virtual ~Job() = default;
    // Does the stage's serial work and returns its number of items (below 65536); 0 skips to the
    // next stage, a negative number ends the job.
    virtual int open(int stage) = 0;
    virtual void run(int stage, int item, int thread) = 0;
    // Whether items take about as long each, and wait for what they read.
    virtual bool is_even(int) { return false; }
};

class Pool {
  public:
    explicit Pool(int threads);
    ~Pool();
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    // Runs the job to its end; the calling thread is thread 0.
    void run(Job &job);
    int size() const { return size_; }
    // The item that a thread will probably run after the one in its hands; -1: none.
    int next_item(int thread) const { return next_[thread].item; }

  private:
    void work(int thread);
    bool take(int thread);
    void advance();
    void publish(uint64_t items);
    int run_of(int left) const;
    int next_run() const;
    void run_items(int first, int count, int thread);
    void wait(uint64_t seen, int &spins);

    // ticket = tag << 32 | next item << 16 | items; the tag counts stages ever opened, so a thread
    // that slept through one cannot take an item of another by mistake. No items: no job.
    alignas(64) std::atomic<uint64_t> ticket_{0};
    alignas(64) std::atomic<int> done_{0};
    alignas(64) std::atomic<int> parked_{0};
    std::atomic<int> shares_{0};        // of the items left, of which a thread takes one; 0: an item
    std::atomic<bool> stopping_{false};
    Job *job_ = nullptr;
    int stage_ = 0;
    int size_;
    std::mutex one_job_;
    struct alignas(64) Next {
        int item = -1;
    };
    std::vector<Next> next_;                    // by thread
    std::vector<std::thread> threads_;
};
