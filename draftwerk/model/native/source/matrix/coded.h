// Weights of two bytes in twelve bits, all of them as they were: of 64 inputs of a panel the upper
// bytes, which hold sign and exponent, are few, and a table of sixteen tells what four bits stand
// for. (Compression of exponents alone: DFloat11, ZipNN.)
//
//     panel   [k / 64] chunks of   one line: the table, then the exceptions
//                                  [8] groups of four steps of a pair of inputs, each in units
//     unit    a register of codes, two of lower bytes: four registers of pairs
//
// An exception is a word whose upper byte the table lacks: its place in the chunk and that byte. A
// matrix of which some chunk has more than a line has room for is not coded.
#pragma once

#include "matrix/matrix.h"

namespace coded {

constexpr int REGISTERS = PANEL / native::LANES;        // of a panel
constexpr int REGISTER_BYTES = sizeof(native::Ints);
constexpr int CHUNK = 64, GROUP = 8;                    // inputs
constexpr int STEPS = GROUP / 2;                        // of a group
constexpr int LINE_BYTES = 64;
constexpr int UNITS = STEPS * REGISTERS / 4;            // of a group
constexpr int UNIT_BYTES = 3 * REGISTER_BYTES, GROUP_BYTES = UNITS * UNIT_BYTES;
constexpr int GROUP_LINES = GROUP_BYTES / LINE_BYTES;
static_assert(UNITS * 4 == STEPS * REGISTERS && GROUP_BYTES % LINE_BYTES == 0);

constexpr int EXCEPTIONS = 12;
struct Heading {
    int8_t table[16];
    uint16_t exceptions, places[EXCEPTIONS];
    uint8_t uppers[EXCEPTIONS];
    uint8_t unused[10];
};
static_assert(sizeof(Heading) == LINE_BYTES);

inline size_t panel_bytes(int k) {
    return static_cast<size_t>((k + CHUNK - 1) / CHUNK) * LINE_BYTES + k / GROUP * GROUP_BYTES;
}
// Whether matrices of k inputs are coded at all.
inline bool fits(Format format, int k) {
    return format == Format::bf16 && k >= CHUNK && k % GROUP == 0;
}

// The four registers of a unit.
[[gnu::always_inline]] inline void read(const int8_t *table, const uint8_t *unit,
                                        native::Ints (&words)[4]) {
    const native::Ints codes = native::load_ints(unit);
    const native::Ints lower[2] = {native::load_ints(unit + REGISTER_BYTES),
                                   native::load_ints(unit + 2 * REGISTER_BYTES)};
    const native::Ints upper[2] = {native::look_up(table, native::nibbles<0>(codes)),
                                   native::look_up(table, native::nibbles<4>(codes))};
    for (int i = 0; i < 2; i++) {
        words[2 * i] = native::interleave_low(lower[i], upper[i]);
        words[2 * i + 1] = native::interleave_high(lower[i], upper[i]);
    }
}

// Codes a panel of words [k / 2][PANEL][2]; false where exceptions are too many.
bool write(const uint16_t *words, int k, uint8_t *panel);
// Reads all words of a chunk of so many groups, or of a panel.
void read_chunk(const uint8_t *chunk, int groups, uint8_t *words);
void read_all(const uint8_t *panel, int k, uint8_t *words);

}  // namespace coded
