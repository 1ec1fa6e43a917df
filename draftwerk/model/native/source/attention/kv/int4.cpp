// Keys in five bits and values in four.
//
//     a key      codes, four bits each | fifth bits of the first half  | scale, bf16
//     a value    codes, four bits each | fifth bits of the key's other | scale, bf16
//
// Heads are turned by a Hadamard matrix, which is its own inverse: their numbers are about normal
// then, and take the levels of a trellis (trellis.h). What the products read are levels alone:
// queries are turned, scores and probabilities have the scales, and what was weighed is turned
// back.
//
// A key is kept less one of two others, whichever is nearer: the mean of keys, or that of a text's
// first token, which is unlike all others and is seen most; the scale's sign tells which. What is
// taken away comes back as a score of its own. A value may be kept less the first token's likewise,
// which is added as it is read. Before they are turned, each of their channels is multiplied by a
// factor, and that of queries and of what was weighed is divided by it.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "attention/kv/trellis.h"
#include "attention/kv_formats.h"
#include "simd/simd.h"

namespace {

constexpr int CODE_UNIT = 16;  // heads have a multiple of so many numbers
constexpr int TRIES = 2;       // scales of heads whose numbers vary by one
constexpr float KEY_SCALES[TRIES] = {0.95f, 1.05f}, VALUE_SCALES[TRIES] = {0.8f, 0.9f};
constexpr bf16 SIGN = 0x8000;
constexpr float LEAST = 0x1p-100f;      // of scales: they have a sign
constexpr double SHARED = 1.0 / 256;    // of a channel's spread: that of all

// What is learnt of a head, [head_size] each.
constexpr int FORM_PARTS = 7;
struct Form {
    const float *mean, *first, *first_value;      // the value as it is kept
    const float *factors, *inverses, *value_factors, *value_inverses;
    Form(const float *form, int size)
        : mean(form), first(form + size), first_value(form + 2 * size),
          factors(form + 3 * size), inverses(form + 4 * size), value_factors(form + 5 * size),
          value_inverses(form + 6 * size) {}
};

// Widens heads, each by itself.
template <class Size, class Each>
[[gnu::always_inline]] inline void widen_heads(const void *base, const int64_t *offsets, int count,
                                               Size size, const Widened &to, Each each) {
    for (int at = 0; at < round_up(count, LANES); at++) {
        if (at >= count) {
            to.offsets[at] = to.offsets[count - 1], to.scales[at] = to.scales[count - 1];
            continue;
        }
        const uint8_t *head = static_cast<const uint8_t *>(base) + offsets[at];
        bf16 scale;
        memcpy(&scale, head + size / 2 + size / CODE_UNIT, sizeof scale);
        to.scales[at] = widen(scale);
        to.offsets[at] = static_cast<int64_t>(at) * size * sizeof(bf16);
        each(head, offsets[at], at, to.room + to.offsets[at]);
    }
}

// Squared distance of a key from another, as it is kept.
float distance(const Form &form, const float *key, const float *other, int size) {
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

// Errors of what is kept are alike in all channels: they matter the least where a factor is the
// root of how much a channel is asked for to how much it varies.
void put_factors(const std::vector<double> &asked, const std::vector<double> &spread, float *to) {
    const size_t size = spread.size();
    for (size_t i = 0; i < size; i++) {
        const bool varies = spread[i] > 0 && asked[i] > 0;
        to[i] = varies ? static_cast<float>(std::sqrt(std::sqrt(asked[i] / spread[i]))) : 1.0f;
        to[size + i] = 1.0f / to[i];
    }
}

void learn(const HeadRows &rows, float *form) {
    const int size = rows.size;
    std::vector<double> keys(size), queries(size), values(size), ones(size, 1.0);
    float *mean = form, *first = form + size, *first_value = form + 2 * size;
    const std::vector<int> tokens = later_tokens(rows);
    for (int i = 0; i < size; i++) {
        double sum = 0;
        for (int t : tokens) sum += rows.keys[t * rows.stride + i];
        mean[i] = static_cast<float>(sum / static_cast<double>(tokens.size()));
        for (int t : tokens) {
            const double apart = static_cast<double>(rows.keys[t * rows.stride + i]) - mean[i];
            const double value = rows.values[t * rows.stride + i];
            keys[i] += apart * apart, values[i] += value * value;
            for (int head = 0; head < rows.group; head++) {
                const double query = rows.queries[t * rows.stride + head * size + i];
                queries[i] += query * query;
            }
        }
    }
    share(keys), share(queries), share(values);
    put_factors(queries, keys, form + 3 * size);
    put_factors(ones, values, form + 5 * size);
    for (int i = 0; i < size; i++) {
        first[i] = rows.keys[i];
        first_value[i] = rows.values[i] * form[5 * size + i];
    }
    turn(first_value, size);
}

// Adds the first token's value to the levels of one that was kept less it.
void add_first(const Form &form, float scale, int size, bf16 *levels) {
    const Floats inverse = broadcast(1.0f / scale);
    for (int i = 0; i < size; i += LANES) {
        const Floats level = load_bf16(levels + i, LANES);
        store_bf16(levels + i, fma(load(form.first_value + i), inverse, level), LANES);
    }
}

// A turned head, and the codes of the scale that gave the nearest direction.
struct Scaled {
    const float *head;
    int size;
    float square, spread, along, near = -1.0f, numbers[trellis::CODES_MAX];
    trellis::Codes both[2];       // the nearest and those that are tried
    int best = 0;

    Scaled(const float *head, int size) : head(head), size(size) {
        square = product(head, head, size);
        spread = std::sqrt(square / static_cast<float>(size));
    }
    const trellis::Codes &codes() const { return both[best]; }
    trellis::Codes &tried() { return both[1 - best]; }
    static bf16 kept(float scale) { return to_bf16(std::max(scale, LEAST)); }
    void divide(float by) {
        const Floats inverse = broadcast(1.0f / widen(kept(spread * by)));
        for (int i = 0; i < size; i += LANES) store(numbers + i, load(head + i) * inverse);
    }
    void keep_nearer() {
        const float to = product(head, tried().levels, size);
        const float nearness = to * std::abs(to) / product(tried().levels, tried().levels, size);
        if (near > -1.0f && !(near < nearness)) return;
        near = nearness, along = to, best = 1 - best;
    }
    // What is kept is as long in the head's direction as the head is, for else all scores would be
    // a little too small.
    bf16 scale() const { return kept(along > 0 ? square / along : spread); }
    void put(bool is_signed, uint8_t *to) const {
        trellis::pack(codes(), size, to);
        const bf16 word = is_signed ? scale() | SIGN : scale();
        memcpy(to + size / 2 + size / CODE_UNIT, &word, sizeof word);
    }
};

void store_codes(const Form &form, const float *key, const float *value, int size,
                 uint8_t *key_to, uint8_t *value_to) {
    float turned[trellis::CODES_MAX], values[trellis::CODES_MAX], apart[trellis::CODES_MAX];
    const bool is_first =
        distance(form, key, form.first, size) < distance(form, key, form.mean, size);
    const float *taken = is_first ? form.first : form.mean;
    for (int i = 0; i < size; i += LANES) {
        store(turned + i, (load(key + i) - load(taken + i)) * load(form.factors + i));
        store(values + i, load(value + i) * load(form.value_factors + i));
    }
    turn(turned, size), turn(values, size);
    for (int i = 0; i < size; i += LANES) {
        store(apart + i, load(values + i) - load(form.first_value + i));
    }
    const bool is_first_value = product(apart, apart, size) < product(values, values, size);
    Scaled kept_key(turned, size), kept_value(is_first_value ? apart : values, size);
    for (int i = 0; i < TRIES; i++) {
        kept_key.divide(KEY_SCALES[i]), kept_value.divide(VALUE_SCALES[i]);
        trellis::choose(kept_key.numbers, kept_value.numbers, size, kept_key.tried(),
                        kept_value.tried());
        kept_key.keep_nearer(), kept_value.keep_nearer();
    }
    kept_key.put(is_first, key_to);
    kept_value.put(is_first_value, value_to);
    const int half = size / 2;
    const uint8_t *ranks = kept_key.codes().ranks;
    for (int i = 0; i < size; i += 8) {
        uint8_t packed = 0;
        for (int bit = 0; bit < 8; bit++) packed |= static_cast<uint8_t>(ranks[i + bit] >> 3 << bit);
        (i < half ? key_to + half + i / 8 : value_to + half + (i - half) / 8)[0] = packed;
    }
}

struct Codes final : KvFormat {
    constexpr Codes() : KvFormat(false, true) {}
    size_t head_bytes(int size) const override { return size / 2 + size / CODE_UNIT + sizeof(bf16); }
    void store_head(const float *form, const float *key, const float *value, int size,
                    void *key_to, void *value_to) const override {
        store_codes({form, size}, key, value, size, static_cast<uint8_t *>(key_to),
                    static_cast<uint8_t *>(value_to));
    }
    const uint8_t *keys(const Lane &lane, const int64_t *offsets, int count, int size,
                        const Widened &to) const override {
        const auto *values = static_cast<const uint8_t *>(lane.values) + size / 2;
        uint8_t fifths[trellis::CODES_MAX / 8 + 4] = {};
        of_size(size, [&](auto size) {
            widen_heads(lane.keys, offsets, count, size, to,
                        [&](const uint8_t *head, int64_t offset, int, uint8_t *out) {
                            memcpy(fifths, head + size / 2, size / CODE_UNIT);
                            memcpy(fifths + size / CODE_UNIT, values + offset, size / CODE_UNIT);
                            trellis::widen<true>(head, fifths, size, out);
                        });
        });
        return to.room;
    }
    const uint8_t *values(const Lane &lane, const int64_t *offsets, int count, int size,
                          const Widened &to) const override {
        const Form form(lane.form, size);
        of_size(size, [&](auto size) {
            widen_heads(lane.values, offsets, count, size, to,
                        [&](const uint8_t *head, int64_t, int at, uint8_t *out) {
                            trellis::widen<false>(head, nullptr, size, out);
                            if (to.scales[at] >= 0) return;
                            to.scales[at] = -to.scales[at];
                            add_first(form, to.scales[at], size, reinterpret_cast<bf16 *>(out));
                        });
        });
        return to.room;
    }
    int form_size(int size) const override { return FORM_PARTS * size; }
    void begin_form(int size, float *form) const override {
        std::fill(form, form + 3 * size, 0.0f);
        std::fill(form + 3 * size, form + FORM_PARTS * size, 1.0f);
    }
    void learn_form(const HeadRows &rows, float *form) const override { learn(rows, form); }
    Taken turn_query(const float *of, const float *query, int size, float *turned) const override {
        const Form form(of, size);
        const Taken taken{product(query, form.mean, size), product(query, form.first, size)};
        for (int i = 0; i < size; i += LANES) {
            store(turned + i, load(query + i) * load(form.inverses + i));
        }
        turn(turned, size);
        return taken;
    }
    void turn_back(const float *of, int size, float *head) const override {
        const Form form(of, size);
        turn(head, size);
        for (int i = 0; i < size; i += LANES) {
            store(head + i, load(head + i) * load(form.value_inverses + i));
        }
    }
};
constexpr Codes INT4;

}  // namespace

const KvFormat &int4_kv() { return INT4; }
