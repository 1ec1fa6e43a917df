#include "simd/amx.h"

#if defined(__AVX512VNNI__) && defined(__linux__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#define WITH_AMX [[gnu::target("amx-tile,amx-int8")]]

namespace {

constexpr int TILE_ROWS = 16, GROUP_WORDS = 8;
constexpr unsigned AMX_TILE = 1u << 24, AMX_INT8 = 1u << 25;
constexpr long REQUEST_PERMISSION = 0x1023, TILE_DATA = 18;     // ARCH_REQ_XCOMP_PERM

// What LDTILECFG reads.
struct alignas(64) Palette {
    uint8_t palette = 1, start_row = 0, reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
};

// Tiles by number: sums of the first and of the second sixteen rows, those rows, and weights.
enum { SUMS, MORE_SUMS, INPUTS, MORE_INPUTS, WEIGHTS };

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

WITH_AMX void configure(const Palette &palette) {
    asm volatile("ldtilecfg %0" : : "m"(palette));
}
WITH_AMX void release() { asm volatile("tilerelease"); }

WITH_AMX void multiply_groups(const int8_t *from, size_t stride, size_t step,
                              const uint8_t *weights, int count, bool is_wide, int32_t *sums) {
    for (int group = 0; group < count; group++, from += step) {
        load<WEIGHTS>(weights, amx::WORD_BYTES);
        load<INPUTS>(from, stride);
        products<SUMS, INPUTS, WEIGHTS>();
        if (is_wide) {
            load<MORE_INPUTS>(from + TILE_ROWS * stride, stride);
            products<MORE_SUMS, MORE_INPUTS, WEIGHTS>();
        }
        store<SUMS>(sums);
        if (is_wide) store<MORE_SUMS>(sums + TILE_ROWS * 16);
        weights += GROUP_WORDS * amx::WORD_BYTES, sums += amx::ROWS * 16;
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

amx::Tiles::Tiles(int rows) : rows_(rows) {
    Palette palette;
    auto shape = [&](int tile, int rows, int bytes) {
        palette.rows[tile] = static_cast<uint8_t>(rows);
        palette.row_bytes[tile] = static_cast<uint16_t>(bytes);
    };
    int first = std::min(rows, TILE_ROWS), more = rows - first;
    shape(SUMS, first, WORD_BYTES), shape(INPUTS, first, 4 * GROUP_WORDS);
    if (more) shape(MORE_SUMS, more, WORD_BYTES), shape(MORE_INPUTS, more, 4 * GROUP_WORDS);
    shape(WEIGHTS, GROUP_WORDS, WORD_BYTES);
    configure(palette);
}

amx::Tiles::~Tiles() { release(); }

void amx::Tiles::multiply(const int8_t *rows, size_t stride, size_t step, const uint8_t *weights,
                          int count, int32_t *sums) const {
    multiply_groups(rows, stride, step, weights, count, rows_ > TILE_ROWS, sums);
}

void amx::multiply_again(long rounds) {
    Palette palette;
    for (int tile = 0; tile < 8; tile++) {
        palette.rows[tile] = TILE_ROWS, palette.row_bytes[tile] = WORD_BYTES;
    }
    configure(palette);
    run_products(rounds);
    release();
}
long amx::round_size() { return available() ? 4 * TILE_ROWS * 16 * WORD_BYTES : 0; }

#else

void amx::multiply_again(long) {}
long amx::round_size() { return 0; }
bool amx::available() { return false; }
amx::Tiles::Tiles(int rows) : rows_(rows) {}
amx::Tiles::~Tiles() = default;
void amx::Tiles::multiply(const int8_t *, size_t, size_t, const uint8_t *, int, int32_t *) const {}

#endif
