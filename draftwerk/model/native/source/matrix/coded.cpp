#include "matrix/coded.h"

#include <algorithm>
#include <array>
#include <numeric>

namespace {

using namespace coded;

constexpr int NONE = 255, COUNTERS = 4;
constexpr int STEP_WORDS = 2 * PANEL, GROUP_WORDS = STEPS * STEP_WORDS;
constexpr int RUN = 8, LANE_BYTES = 16;         // bytes that are interleaved, of how many
constexpr int REGISTER_WORDS = REGISTER_BYTES / 2, LANES = REGISTER_BYTES / LANE_BYTES;

// How many words have each upper byte.
std::array<int, 256> count_uppers(const uint16_t *words, int count) {
    int seen[COUNTERS][256] = {};               // so that few additions wait for each other
    for (int i = 0; i < count; i += COUNTERS) {
        for (int j = 0; j < COUNTERS; j++) seen[j][words[i + j] >> 8]++;
    }
    std::array<int, 256> total = {};
    for (const auto &one : seen) {
        for (int upper = 0; upper < 256; upper++) total[upper] += one[upper];
    }
    return total;
}

// Finds the sixteen upper bytes that most words have, and the code of each; returns how many words
// have another.
int choose(const uint16_t *words, int count, int8_t (&table)[16], uint8_t (&codes)[256]) {
    const std::array<int, 256> seen = count_uppers(words, count);
    uint8_t uppers[256];
    std::iota(uppers, uppers + 256, 0);
    std::nth_element(uppers, uppers + 16, uppers + 256, [&](uint8_t a, uint8_t b) {
        return seen[a] != seen[b] ? seen[a] > seen[b] : a < b;
    });
    std::sort(uppers, uppers + 16);
    std::fill_n(codes, 256, NONE);
    for (int code = 0; code < 16; code++) {
        table[code] = static_cast<int8_t>(uppers[code]);
        codes[uppers[code]] = code;
        count -= seen[uppers[code]];
    }
    return count;
}

// Puts down `left` words, which have no code.
void except(const uint16_t *words, int left, const uint8_t (&codes)[256], Heading &heading) {
    for (int i = 0; heading.exceptions < left; i++) {
        const uint8_t upper = words[i] >> 8;
        if (codes[upper] != NONE) continue;
        heading.places[heading.exceptions] = i;
        heading.uppers[heading.exceptions++] = upper;
    }
}

void write_unit(const uint16_t *words, const uint8_t (&codes)[256], uint8_t *to) {
    for (int part = 0; part < 4; part++) {
        const int which = part / 2;
        for (int lane = 0; lane < LANES; lane++) {
            const int at = lane * LANE_BYTES + part % 2 * RUN;
            const uint16_t *run = words + part * REGISTER_WORDS + lane * RUN;
            uint8_t *lower = to + (1 + which) * REGISTER_BYTES + at;
            for (int i = 0; i < RUN; i++) {
                const int code = codes[run[i] >> 8] & 15;
                to[at + i] = which ? to[at + i] | code << 4 : code;
                lower[i] = run[i] & 255;
            }
        }
    }
}

}  // namespace

bool coded::write(const uint16_t *words, int k, uint8_t *panel) {
    for (int begin = 0; begin < k; begin += CHUNK) {
        const int groups = std::min(CHUNK, k - begin) / GROUP;
        auto *heading = reinterpret_cast<Heading *>(panel);
        *heading = {};
        uint8_t codes[256];
        const int left = choose(words, groups * GROUP_WORDS, heading->table, codes);
        if (left > EXCEPTIONS) return false;
        except(words, left, codes, *heading);
        panel += LINE_BYTES;
        for (int unit = 0; unit < groups * UNITS; unit++, panel += UNIT_BYTES) {
            write_unit(words, codes, panel);
            words += 4 * REGISTER_WORDS;
        }
    }
    return true;
}

void coded::read_chunk(const uint8_t *chunk, int groups, uint8_t *words) {
    const auto *heading = reinterpret_cast<const Heading *>(chunk);
    const uint8_t *unit = chunk + LINE_BYTES;
    for (int i = 0; i < groups * UNITS; i++, unit += UNIT_BYTES) {
        native::Ints found[4];
        read(heading->table, unit, found);
        for (int j = 0; j < 4; j++) native::store(words + (4 * i + j) * REGISTER_BYTES, found[j]);
    }
    for (int i = 0; i < heading->exceptions; i++) {
        words[2 * heading->places[i] + 1] = heading->uppers[i];
    }
}

void coded::read_all(const uint8_t *panel, int k, uint8_t *words) {
    for (int begin = 0; begin < k; begin += CHUNK) {
        const int groups = std::min(CHUNK, k - begin) / GROUP;
        read_chunk(panel, groups, words);
        panel += LINE_BYTES + groups * GROUP_BYTES;
        words += groups * GROUP_WORDS * 2;
    }
}
