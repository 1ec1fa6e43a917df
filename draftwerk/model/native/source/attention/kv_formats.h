// The table of formats that keys and values are kept in: each is a row there, and a file in kv/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

// One KV head of one layer: where position 0 of slot 0 is, and the distance between slots.
struct Lane {
    const void *keys;
    const void *values;
    size_t stride;                // bytes
    const float *form;
};

// Where heads of a tile may be put as the products read them: room for all, and what is returned
// of each, also of the positions that fill up a vector.
struct Widened {
    uint8_t *room;
    int64_t *offsets;             // bytes
    float *scales;
};

// What the tokens of some texts have computed of one KV head, `stride` numbers apart.
struct HeadRows {
    const float *queries, *keys, *values;    // of the first token; `group` queries side by side
    size_t stride;
    const int32_t *starts;        // [texts + 1]
    int texts, group, size;
};

// A query's scores of what was taken away from keys: of those whose scale is positive, and others.
struct Taken {
    float positive, negative;
};

// Calls `widen` with the size of heads, a constant where it is one that many models have.
template <class Widen>
void of_size(int size, Widen widen) {
    if (size == 64) widen(std::integral_constant<int, 64>());
    else if (size == 128) widen(std::integral_constant<int, 128>());
    else widen(size);
}

struct KvFormat {
    bool in_fp32;                 // the products read floats, or else pairs of bf16
    // Scales are factors of scores and probabilities; queries are turned as keys are, and what was
    // weighed is turned back.
    bool has_scales;

    constexpr KvFormat(bool in_fp32, bool has_scales)
        : in_fp32(in_fp32), has_scales(has_scales) {}
    // What a head's key or value takes in the pages.
    virtual size_t head_bytes(int size) const = 0;
    virtual void store_head(const float *form, const float *key, const float *value, int size,
                            void *key_to, void *value_to) const = 0;
    // Return what offsets are counted from; `offsets` are bytes from the lane's base, filled up to a
    // multiple of 16. At first heads are read where they lie.
    virtual const uint8_t *keys(const Lane &lane, const int64_t *offsets, int count, int size,
                                const Widened &to) const;
    virtual const uint8_t *values(const Lane &lane, const int64_t *offsets, int count, int size,
                                  const Widened &to) const;
    // A form is how a KV head is kept, which is learnt: so many floats, none at first.
    virtual int form_size(int) const { return 0; }
    virtual void begin_form(int, float *) const {}
    virtual void learn_form(const HeadRows &, float *) const {}
    // Puts a query as kept keys are multiplied by it.
    virtual Taken turn_query(const float *, const float *, int, float *) const { return {}; }
    virtual void turn_back(const float *, int, float *) const {}

protected:
    ~KvFormat() = default;
};

// The format of that row.
const KvFormat &kv_format(int number);

// Writes a head as floats or bf16.
void store_floats(const float *head, int size, bool in_fp32, void *to);
