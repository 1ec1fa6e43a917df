#include "simd/amx.h"

#if defined(__AVX512VNNI__) && defined(__linux__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#define WITH_AMX [[gnu::target("amx-tile,amx-int8")]]

namespace {

constexpr int TILE_ROWS = 16, GROUP_WORDS = 8, HALF_SUMS = TILE_ROWS * 16;
constexpr unsigned AMX_TILE = 1u << 24, AMX_INT8 = 1u << 25;
constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;     // ARCH_REQ_XCOMP_PERM

// What LDTILECFG reads.
struct alignas(64) Palette {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
};

// Tiles by number: sixteen rows of inputs and those behind them; and, for steps that take turns,
// weights, and sums of the one and of the other rows.
enum { INPUTS, MORE_INPUTS, WEIGHTS, OTHER_WEIGHTS, SUMS, MORE_SUMS, OTHER_SUMS, MORE_OTHER_SUMS };

// The rows that this thread's tiles have, 0 without tiles.
thread_local int configured_rows = 0;

template <int TILE>
WITH_AMX inline void load(const void *from, size_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(TILE) : "memory");
}
template <int TILE>
WITH_AMX inline void store(void *to) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 : : "r"(to), "r"(static_cast<size_t>(amx::WORD_BYTES)), "i"(TILE) : "memory");
}
template <int TO, int ROWS, int BY>
WITH_AMX inline void products() {
    asm volatile("tilezero %%tmm%c0\n\ttdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0"
                 : : "i"(TO), "i"(ROWS), "i"(BY));
}

WITH_AMX void configure(const Palette &palette, int rows) {
    asm volatile("ldtilecfg %0" : : "m"(palette));
    configured_rows = rows;
}
WITH_AMX void release_tiles() { asm volatile("tilerelease"); }

// One group's words of one panel, and meanwhile the sums of the step before to memory: a product
// and the store of its own sums wait for each other.
template <bool IS_WIDE, int BY, int TO, int MORE_TO, int BEFORE, int MORE_BEFORE>
WITH_AMX inline void step(const uint8_t *weights, int32_t *before) {
    load<BY>(weights, amx::WORD_BYTES);
    products<TO, INPUTS, BY>();
    if (before) store<BEFORE>(before);
    if (!IS_WIDE) return;
    products<MORE_TO, MORE_INPUTS, BY>();
    if (before) store<MORE_BEFORE>(before + HALF_SUMS);
}

template <bool IS_WIDE>
WITH_AMX void multiply_groups(const int8_t *from, size_t stride, size_t step_bytes,
                              const uint8_t *weights, int count, int panels, int32_t *sums) {
    bool is_other = false;
    int32_t *before = nullptr;
    for (int group = 0; group < count; group++, from += step_bytes) {
        load<INPUTS>(from, stride);
        if (IS_WIDE) load<MORE_INPUTS>(from + TILE_ROWS * stride, stride);
        for (int panel = 0; panel < panels; panel++) {
            if (is_other) {
                step<IS_WIDE, OTHER_WEIGHTS, OTHER_SUMS, MORE_OTHER_SUMS, SUMS, MORE_SUMS>(weights,
                                                                                           before);
            } else {
                step<IS_WIDE, WEIGHTS, SUMS, MORE_SUMS, OTHER_SUMS, MORE_OTHER_SUMS>(weights,
                                                                                     before);
            }
            is_other = !is_other, before = sums;
            weights += GROUP_WORDS * amx::WORD_BYTES, sums += 2 * HALF_SUMS;
        }
    }
    if (is_other) {
        store<SUMS>(before);
        if (IS_WIDE) store<MORE_SUMS>(before + HALF_SUMS);
    } else {
        store<OTHER_SUMS>(before);
        if (IS_WIDE) store<MORE_OTHER_SUMS>(before + HALF_SUMS);
    }
}

WITH_AMX void run_products(long rounds) {
    for (long i = 0; i < rounds; i++) {
        asm volatile("tdpbssd %tmm6, %tmm4, %tmm0\n\ttdpbssd %tmm6, %tmm5, %tmm1\n\t"
                     "tdpbssd %tmm7, %tmm4, %tmm2\n\ttdpbssd %tmm7, %tmm5, %tmm3");
    }
}

bool found() {
    unsigned a, b, c, d;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
    if (!(d & AMX_TILE) || !(d & AMX_INT8)) return false;
    return syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA) == 0;
}

}  // namespace

bool amx::available() {
    static const bool is_there = found();
    return is_there;
}

void amx::use_rows(int rows) {
    if (rows == configured_rows) return;
    Palette palette;
    auto shape = [&](int tile, int rows, int bytes) {
        palette.rows[tile] = static_cast<uint8_t>(rows);
        palette.row_bytes[tile] = static_cast<uint16_t>(bytes);
    };
    const int first = std::min(rows, TILE_ROWS), more = rows - first;
    shape(INPUTS, first, 4 * GROUP_WORDS);
    if (more) shape(MORE_INPUTS, more, 4 * GROUP_WORDS);
    for (int tile : {WEIGHTS, OTHER_WEIGHTS}) shape(tile, GROUP_WORDS, WORD_BYTES);
    for (int tile : {SUMS, OTHER_SUMS}) shape(tile, first, WORD_BYTES);
    for (int tile : {MORE_SUMS, MORE_OTHER_SUMS}) if (more) shape(tile, more, WORD_BYTES);
    configure(palette, rows);
}

void amx::release() {
    if (configured_rows) release_tiles();
    configured_rows = 0;
}

void amx::multiply(int rows, const int8_t *from, size_t stride, size_t step,
                   const uint8_t *weights, int count, int panels, int32_t *sums) {
    (rows > TILE_ROWS ? multiply_groups<true> : multiply_groups<false>)(from, stride, step, weights,
                                                                        count, panels, sums);
}

void amx::multiply_again(long rounds) {
    Palette palette;
    for (int tile = 0; tile < 8; tile++) {
        palette.rows[tile] = TILE_ROWS, palette.row_bytes[tile] = WORD_BYTES;
    }
    configure(palette, TILE_ROWS);
    run_products(rounds);
    release();
}
long amx::round_size() { return available() ? 4 * TILE_ROWS * 16 * WORD_BYTES : 0; }

#else

void amx::multiply_again(long) {}
long amx::round_size() { return 0; }
bool amx::available() { return false; }
void amx::use_rows(int) {}
void amx::release() {}
void amx::multiply(int, const int8_t *, size_t, size_t, const uint8_t *, int, int, int32_t *) {}

#endif
