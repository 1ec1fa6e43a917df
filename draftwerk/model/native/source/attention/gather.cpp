#include "attention/gather.h"

void gather_keys(const uint8_t *base, const int64_t *offsets, int count, int words, uint8_t *out,
                 Ahead &ahead) {
    constexpr int SIDE = native::LANES;   // of the squares that are transposed
    for (int first = 0; first < count; first += SIDE) {
        for (int word = 0; word < words; word += SIDE) {
            native::Ints rows[SIDE];
            ahead.some();
#pragma GCC unroll 16
            for (int i = 0; i < SIDE; i++) {
                rows[i] = native::load_words(base + offsets[first + i] + 4 * word, words - word);
            }
            native::transpose(rows);
            uint8_t *to = out + (static_cast<size_t>(word) * COLUMNS_MAX + first) * 4;
#pragma GCC unroll 16
            for (int i = 0; i < SIDE; i++) native::store(to + i * COLUMNS_MAX * 4, rows[i]);
        }
    }
}

void gather_values(const uint8_t *base, const int64_t *offsets, int count, int words, int padded,
                   uint8_t *out, Ahead &ahead) {
    for (int at = 0; at < count; at++, out += 4 * padded) {
        if (at % AHEAD_STEPS == 0) ahead.some();
        for (int i = 0; i < padded; i += native::LANES) {
            native::store(out + 4 * i, native::load_words(base + offsets[at] + 4 * i, words - i));
        }
    }
}
