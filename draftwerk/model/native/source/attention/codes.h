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
#pragma once

#include <vector>

#include "attention/attention.h"

// Heads have a multiple of so many numbers.
constexpr int CODE_UNIT = 16;

// The keys and factors of one KV head, [head_size] each; they are learnt.
struct KeyForm {
    const float *mean, *first, *factors, *inverses;
};
// Of some heads, with nothing taken away and factors of one.
std::vector<float> plain_forms(int kv_heads, int size);
KeyForm form_of(const std::vector<float> &forms, int kv_head, int size);

// What the tokens of some texts have computed of one KV head, `stride` numbers apart.
struct HeadRows {
    const float *queries, *keys;  // of the first token; queries of `group` heads side by side
    size_t stride;
    const int32_t *starts;        // [texts + 1]
    int texts, group, size;
};
// Adds the form that has the least errors of scores.
void learn_form(const HeadRows &rows, std::vector<float> &forms);

// Turns a head in place: in pieces of the greatest power of two that divides its size.
void turn(float *head, int size);

// Writes a head's key and value.
void store_codes(const KeyForm &form, const float *key, const float *value, int size,
                 uint8_t *key_to, uint8_t *value_to);

// Puts a query as kept keys are multiplied by it; returns its scores of what was taken away.
struct Taken {
    float mean, first;
};
Taken turn_query(const KeyForm &form, const float *query, int size, float *turned);

// The levels of keys or values as bf16, and where each head's are and its scale, also of the
// positions that fill up a vector.
void widen_keys(const Lane &lane, const int64_t *offsets, int count, int size, int64_t *widened,
                uint8_t *out, float *scales);
void widen_values(const Lane &lane, const int64_t *offsets, int count, int size, int64_t *widened,
                  uint8_t *out, float *scales);
