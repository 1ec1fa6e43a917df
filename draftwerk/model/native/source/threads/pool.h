// A few threads that run the stages of one job, item by item.
//
//     stage 0: items 0 .. n | stage 1: items 0 .. m | ...      a stage opens when the last is done
//
// Threads take items from one atomic word, so a thread the kernel has descheduled delays only the
// item in its hands; no thread waits for another, only for items. The thread that completes a stage
// opens the next one, alone: small serial work belongs there and costs no barrier.
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

  private:
    void work(int thread);
    bool take(int thread);
    void advance();
    void publish(uint64_t items);
    void wait(uint64_t seen, int &spins);

    // ticket = tag << 32 | next item << 16 | items; the tag counts stages ever opened, so a thread
    // that slept through one cannot take an item of another by mistake. No items: no job.
    alignas(64) std::atomic<uint64_t> ticket_{0};
    alignas(64) std::atomic<int> done_{0};
    alignas(64) std::atomic<int> parked_{0};
    std::atomic<bool> stopping_{false};
    Job *job_ = nullptr;
    int stage_ = 0;
    int size_;
    std::mutex one_job_;
    std::vector<std::thread> threads_;
};
