// Who made the processor, where kernels that compute the same differ in speed.
#pragma once

#if defined(__x86_64__)
#include <cpuid.h>
#endif

// Whether a kernel that reads one panel after the other for a single row of activations should
// fetch the next one: Intel's hardware fetches such a stream too late (Ice Lake, weights of four
// bits: 1.29 times a plain read, and 1.08 with fetching), AMD's on time (Zen 4: 1.03 without).
inline bool fetches_for_one_row() {
#if defined(__x86_64__)
    static const bool is_intel = [] {
        unsigned highest, b, c, d;
        return __get_cpuid(0, &highest, &b, &c, &d) && b == 0x756e6547;     // "Genu"
    }();
    return is_intel;
#else
    return false;
#endif
}
