// A thread's floating-point mode, set before it computes.
#pragma once

#if defined(__x86_64__)
#include <immintrin.h>

inline void spin_pause() { _mm_pause(); }

// Denormal numbers are slow on many processors. No result depends on them (see TINY in simd.h).
class FlushDenormals {
  public:
    FlushDenormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040); }
    ~FlushDenormals() { _mm_setcsr(before_); }
    FlushDenormals(const FlushDenormals &) = delete;

  private:
    unsigned before_;
};

#else

inline void spin_pause() {
#if defined(__aarch64__)
    asm volatile("yield");
#endif
}

struct FlushDenormals {
    FlushDenormals() {}
    ~FlushDenormals() {}
};

#endif
