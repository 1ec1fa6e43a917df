// Keys in five bits and values in four.
//
//     a key      codes, four bits each | fifth bits of the first half  | scale, bf16
//     a value    codes, four bits each | fifth bits of the key's other | scale, bf16
//
// Heads are turned by a Hadamard matrix, which is its own inverse: their numbers are about normal
// then, and take the nearest of the levels that are best for those (Lloyd, Max). What the products
// read are levels alone: queries are turned, scores and probabilities have the scales, and what
// was weighed is turned back.
//
// A key is kept less one of two others, whichever is nearer: the mean of keys, or that of a text's
// first token, which is unlike all others and is seen most; the scale's sign tells which. What is
// taken away comes back as a score of its own. Before keys are turned, each of their channels is
// multiplied by a factor, and that of the queries is divided by it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "attention/kv_formats.h"
#include "simd/simd.h"

namespace {

constexpr int CODE_UNIT = 16;  // heads have a multiple of so many numbers
constexpr int REFITS = 2;      // how often a scale is fitted to the levels that it gave
constexpr int CODES_MAX = 1024;
constexpr bf16 SIGN = 0x8000;
constexpr float LEAST = 0x1p-100f;      // of scales: they have a sign
constexpr double SHARED = 1.0 / 256;    // of a channel's spread: that of all

// The keys and factors of a form, [head_size] each.
constexpr int FORM_PARTS = 4;
struct KeyForm {
    const float *mean, *first, *factors, *inverses;
    KeyForm(const float *form, int size)
        : mean(form), first(form + size), factors(form + 2 * size), inverses(form + 3 * size) {}
};

// The upper halves of levels, as bf16; the lower ones are their negatives.
constexpr std::array<uint16_t, 16> KEY_HALF = {
    0x3d85, 0x3e47, 0x3ea7, 0x3eeb, 0x3f18, 0x3f3c, 0x3f62, 0x3f84,
    0x3f99, 0x3faf, 0x3fc8, 0x3fe3, 0x4001, 0x4013, 0x402b, 0x4050};
constexpr std::array<uint16_t, 8> VALUE_HALF = {0x3e03, 0x3ec7, 0x3f28, 0x3f71,
                                                0x3fa1, 0x3fcf, 0x4004, 0x402f};

template <size_t HALF>
constexpr auto levels_of(const std::array<uint16_t, HALF> &upper) {
    std::array<uint16_t, 2 * HALF> levels{};
    for (size_t i = 0; i < HALF; i++) {
        levels[HALF + i] = upper[i];
        levels[HALF - 1 - i] = static_cast<uint16_t>(upper[i] | 0x8000);
    }
    return levels;
}
constexpr auto KEY_LEVELS = levels_of(KEY_HALF);
constexpr auto VALUE_LEVELS = levels_of(VALUE_HALF);

// The codes of a turned head, and the scale of their levels: what is kept is as long in the head's
// direction as the head is, for else all scores would be a little too small.
template <size_t COUNT>
bf16 choose(const std::array<uint16_t, COUNT> &levels, const float *head, int size,
            uint8_t *codes) {
    Floats squares = broadcast(0.0f);
    for (int i = 0; i < size; i += LANES) squares = fma(load(head + i), load(head + i), squares);
    const float square = reduce_add(squares);
    float scale = std::sqrt(square / static_cast<float>(size));
    for (int round = 0;; round++) {
        const bf16 kept = to_bf16(std::max(scale, LEAST));
        const Floats inverse = broadcast(1.0f / widen(kept));
        Floats products = broadcast(0.0f), weights = broadcast(0.0f);
        for (int i = 0; i < size; i += LANES) {
            const Floats number = load(head + i) * inverse;
            Floats code = broadcast(0.0f), level = broadcast(widen(levels[0]));
            for (size_t next = 1; next < COUNT; next++) {
                const float below = widen(levels[next - 1]), above = widen(levels[next]);
                const Mask more = less(broadcast((below + above) / 2), number);
                code = select(more, broadcast(static_cast<float>(next)), code);
                level = select(more, broadcast(above), level);
            }
            store_bytes(codes + i, to_ints(code), LANES);
            products = fma(load(head + i), level, products);
            weights = fma(level, level, weights);
        }
        const float along = reduce_add(products);
        if (round == REFITS) return along > 0 ? to_bf16(std::max(square / along, LEAST)) : kept;
        scale = along / reduce_add(weights);
    }
}

void put(const uint8_t *codes, int size, const uint8_t *fifths, bf16 scale, uint8_t *to) {
    for (int i = 0; i < size / 2; i++) {
        to[i] = static_cast<uint8_t>((codes[2 * i] & 15) | (codes[2 * i + 1] & 15) << 4);
    }
    memcpy(to + size / 2, fifths, size / CODE_UNIT);
    memcpy(to + size / 2 + size / CODE_UNIT, &scale, sizeof scale);
}

// Widens heads, after `fifths_at` has read the fifth bits of each.
template <size_t COUNT, class Fifths>
void widen_codes(const std::array<uint16_t, COUNT> &levels, const void *base,
                 const int64_t *offsets, int count, int size, Widened to, Fifths fifths_at) {
    uint8_t fifths[CODES_MAX / 8 + 4] = {};
    for (int at = 0; at < round_up(count, LANES); at++) {
        if (at >= count) {
            to.offsets[at] = to.offsets[count - 1], to.scales[at] = to.scales[count - 1];
            continue;
        }
        const uint8_t *head = static_cast<const uint8_t *>(base) + offsets[at];
        fifths_at(head, offsets[at], fifths);
        bf16 scale;
        memcpy(&scale, head + size / 2 + size / CODE_UNIT, sizeof scale);
        to.scales[at] = widen(scale);
        to.offsets[at] = static_cast<int64_t>(at) * size * sizeof(bf16);
        uint8_t *out = to.room + static_cast<int64_t>(at) * size * sizeof(bf16);
        for (int i = 0; i < size; i += 2 * LANES, out += 2 * LANES * sizeof(bf16)) {
            uint32_t bits;
            memcpy(&bits, fifths + i / 8, sizeof bits);
            native::look_up_words<COUNT>(levels.data(), head + i / 2, (size - i) / 2, bits, out);
        }
    }
}

// Squared distance of a key from another, as it is kept.
float distance(const KeyForm &form, const float *key, const float *other, int size) {
    Floats squares = broadcast(0.0f);
    for (int i = 0; i < size; i += LANES) {
        const Floats apart = (load(key + i) - load(other + i)) * load(form.factors + i);
        squares = fma(apart, apart, squares);
    }
    return reduce_add(squares);
}

float product(const float *one, const float *other, int size) {
    Floats sum = broadcast(0.0f);
    for (int i = 0; i < size; i += LANES) sum = fma(load(one + i), load(other + i), sum);
    return reduce_add(sum);
}

// All but the first of each text.
std::vector<int> later_tokens(const HeadRows &rows) {
    std::vector<int> found;
    for (int text = 0; text < rows.texts; text++) {
        for (int t = rows.starts[text] + 1; t < rows.starts[text + 1]; t++) found.push_back(t);
    }
    return found;
}

// Adds a share of all channels' to each, so that one that hardly varied has no extreme factor.
void share(std::vector<double> &squares) {
    double sum = 0;
    for (double each : squares) sum += each;
    for (double &each : squares) each += SHARED * sum / static_cast<double>(squares.size());
}

// Errors of a kept key are alike in all channels: those of scores are the least where a factor is
// the root of how much queries vary to how much keys do.
void learn(const HeadRows &rows, float *form) {
    const int size = rows.size;
    std::vector<double> keys(size), queries(size);
    float *mean = form, *first = form + size, *factors = form + 2 * size;
    const std::vector<int> tokens = later_tokens(rows);
    for (int i = 0; i < size; i++) {
        double sum = 0;
        for (int t : tokens) sum += rows.keys[t * rows.stride + i];
        mean[i] = static_cast<float>(sum / static_cast<double>(tokens.size()));
        first[i] = rows.keys[i];
        for (int t : tokens) {
            const double apart = static_cast<double>(rows.keys[t * rows.stride + i]) - mean[i];
            keys[i] += apart * apart;
            for (int head = 0; head < rows.group; head++) {
                const double query = rows.queries[t * rows.stride + head * size + i];
                queries[i] += query * query;
            }
        }
    }
    share(keys), share(queries);
    for (int i = 0; i < size; i++) {
        const bool varies = keys[i] > 0 && queries[i] > 0;
        const double factor = varies ? std::sqrt(std::sqrt(queries[i] / keys[i])) : 1.0;
        factors[i] = static_cast<float>(factor);
        factors[size + i] = 1.0f / factors[i];
    }
}

// In pieces of the greatest power of two that divides its size.
void turn(float *head, int size) {
    const int piece = size & -size;
    const float norm = 1.0f / std::sqrt(static_cast<float>(piece));
    for (int half = 1; half < piece; half *= 2) {
        for (int first = 0; first < size; first += 2 * half) {
            for (int i = first; i < first + half; i++) {
                const float one = head[i], other = head[i + half];
                head[i] = one + other, head[i + half] = one - other;
            }
        }
    }
    for (int i = 0; i < size; i++) head[i] *= norm;
}

void store_codes(const KeyForm &form, const float *key, const float *value, int size,
                 uint8_t *key_to, uint8_t *value_to) {
    float turned[CODES_MAX];
    uint8_t codes[CODES_MAX], fifths[CODES_MAX / 8] = {};
    const bool is_first =
        distance(form, key, form.first, size) < distance(form, key, form.mean, size);
    const float *taken = is_first ? form.first : form.mean;
    for (int i = 0; i < size; i += LANES) {
        store(turned + i, (load(key + i) - load(taken + i)) * load(form.factors + i));
    }
    turn(turned, size);
    bf16 scale = choose(KEY_LEVELS, turned, size, codes);
    if (is_first) scale |= SIGN;
    for (int i = 0; i < size; i++) fifths[i / 8] |= static_cast<uint8_t>(codes[i] >> 4 << i % 8);
    put(codes, size, fifths, scale, key_to);
    memcpy(turned, value, size * sizeof(float));
    turn(turned, size);
    scale = choose(VALUE_LEVELS, turned, size, codes);
    put(codes, size, fifths + size / CODE_UNIT, scale, value_to);
}

struct Codes final : KvFormat {
    constexpr Codes() : KvFormat(false, true) {}
    size_t head_bytes(int size) const override {
        return size / 2 + size / CODE_UNIT + sizeof(bf16);
    }
    void store_head(const float *form, const float *key, const float *value, int size,
                    void *key_to, void *value_to) const override {
        store_codes({form, size}, key, value, size, static_cast<uint8_t *>(key_to),
                    static_cast<uint8_t *>(value_to));
    }
    const uint8_t *keys(const Lane &lane, const int64_t *offsets, int count, int size,
                        const Widened &to) const override {
        const auto *values = static_cast<const uint8_t *>(lane.values);
        const int half = size / CODE_UNIT;
        widen_codes(KEY_LEVELS, lane.keys, offsets, count, size, to,
                    [&](const uint8_t *head, int64_t offset, uint8_t *fifths) {
                        memcpy(fifths, head + size / 2, half);
                        memcpy(fifths + half, values + offset + size / 2, half);
                    });
        return to.room;
    }
    const uint8_t *values(const Lane &lane, const int64_t *offsets, int count, int size,
                          const Widened &to) const override {
        widen_codes(VALUE_LEVELS, lane.values, offsets, count, size, to,
                    [](const uint8_t *, int64_t, uint8_t *) {});
        return to.room;
    }
    int form_size(int size) const override { return FORM_PARTS * size; }
    void begin_form(int size, float *form) const override {
        std::fill(form, form + FORM_PARTS / 2 * size, 0.0f);
        std::fill(form + FORM_PARTS / 2 * size, form + FORM_PARTS * size, 1.0f);
    }
    void learn_form(const HeadRows &rows, float *form) const override { learn(rows, form); }
    Taken turn_query(const float *of, const float *query, int size, float *turned) const override {
        const KeyForm form(of, size);
        const Taken taken{product(query, form.mean, size), product(query, form.first, size)};
        for (int i = 0; i < size; i += LANES) {
            store(turned + i, load(query + i) * load(form.inverses + i));
        }
        turn(turned, size);
        return taken;
    }
    void turn_back(const float *, int size, float *head) const override { turn(head, size); }
};
constexpr Codes INT4;

}  // namespace

const KvFormat &int4_kv() { return INT4; }
