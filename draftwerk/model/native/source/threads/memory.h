// Zeroed memory in huge pages: weights are streamed once a step, and 4 kB pages would stop the
// prefetcher at every boundary.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <new>
#include <utility>

class Memory {
  public:
    Memory() = default;
    explicit Memory(size_t bytes) : bytes_((bytes + HUGE - 1) / HUGE * HUGE) {
        // Over-allocate by one page so that the data can start on a huge-page boundary.
        base_ = mmap(nullptr, bytes_ + HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                     -1, 0);
        if (base_ == MAP_FAILED) throw std::bad_alloc();
        auto address = reinterpret_cast<size_t>(base_);
        data_ = reinterpret_cast<void *>((address + HUGE - 1) / HUGE * HUGE);
        if (bytes >= HUGE) madvise(data_, bytes_, MADV_HUGEPAGE);
    }
    ~Memory() {
        if (base_) munmap(base_, bytes_ + HUGE);
    }
    Memory(Memory &&other) noexcept { swap(other); }
    Memory &operator=(Memory &&other) noexcept {
        swap(other);
        return *this;
    }

    // Another's memory, which outlives this.
    static Memory over(void *data, size_t bytes) {
        Memory found;
        found.data_ = data;
        found.bytes_ = bytes;
        return found;
    }

    size_t bytes() const { return bytes_; }
    template <class T>
    T *as() const {
        return static_cast<T *>(data_);
    }

  private:
    static constexpr size_t HUGE = size_t{2} << 20;
    void swap(Memory &other) {
        std::swap(base_, other.base_);
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
    }
    void *base_ = nullptr;
    void *data_ = nullptr;
    size_t bytes_ = 0;
};
