// Layers with a recurrence: of a value head the state is a matrix S [key_size][value_size], and a token
//
//     delta    S = e^g S,       m = k S,   S = S + k (beta (v - m)),   o = q S
//     mamba    S = e^(A dt) S,             S = S + k (dt v),           o = q S + D v
//
// Columns of S do not meet: an item is sixteen of them, and goes through a row's tokens one after
// the other. A lane does the same additions in the same order on every instruction set and in every
// cut of a text.
#pragma once

#include "forward/model.h"

// What a token brings to its heads.
struct RecurrentToken {
    const float *query, *key;     // of all key heads
    const float *value;           // of all value heads
    const float *beta, *decay;    // by value head: what is written, of the state what is kept
};

// A slab: sixteen columns of a value head's matrix.
struct RecurrentItem {
    int head, column, columns;    // the first column, and how many
};

// Where things are in slots and rows of one model.
struct RecurrentLayout {
    int key_heads, value_heads, key_size, value_size, taps;
    bool is_mamba, takes_turns;
    explicit RecurrentLayout(const Shape &shape)
        : key_heads(shape.recurrent_key_heads), value_heads(shape.recurrent_value_heads),
          key_size(shape.recurrent_key_size), value_size(shape.recurrent_value_size),
          taps(shape.recurrent_taps),
          is_mamba(static_cast<Rule>(shape.recurrent_rule) == Rule::mamba),
          takes_turns(shape.recurrent_takes_turns != 0) {}
    int key_width() const { return key_heads * key_size; }
    int value_width() const { return value_heads * value_size; }
    int channels() const { return 2 * key_width() + value_width(); }
    int steps() const { return (is_mamba ? 1 : 2) * value_heads; }
    // Of a matrix of inputs: channels, gates, steps, of the delta rule decays.
    int inputs() const { return channels() + value_width() + steps(); }
    int key_head(int value_head) const {
        return takes_turns ? value_head % key_heads : value_head / (value_heads / key_heads);
    }
    int groups() const { return (value_size + LANES - 1) / LANES; }
    int items() const { return value_heads * groups(); }
    RecurrentItem item(int index) const {
        int column = index % groups() * LANES;
        return {index / groups(), column, std::min(LANES, value_size - column)};
    }
    size_t matrices() const { return static_cast<size_t>(value_heads) * key_size * value_size; }
    size_t layer_numbers() const {
        return matrices() + static_cast<size_t>(taps - 1) * channels();
    }
    size_t numbers(int layers) const { return HEADER + layers * layer_numbers(); }
    static constexpr size_t HEADER = 16;     // numbers; the first is the position
    // Of a layer, by its number among those that recur.
    float *matrices_of(float *slot, int number) const {
        return slot + HEADER + number * layer_numbers();
    }
    float *window_of(float *slot, int number) const {
        return matrices_of(slot, number) + matrices();
    }
    size_t slab_numbers() const { return static_cast<size_t>(key_size) * LANES; }
    // A token's mixed inputs: queries, keys, values, betas, decays.
    int mixed() const { return channels() + 2 * value_heads; }
    RecurrentToken token(const float *mixed) const {
        const float *key = mixed + key_width(), *value = key + key_width();
        const float *beta = value + value_width();
        return {mixed, key, value, beta, beta + value_heads};
    }
};

void load_slab(const RecurrentLayout &layout, const float *matrices, const RecurrentItem &item, float *slab);
void store_slab(const RecurrentLayout &layout, const float *slab, const RecurrentItem &item,
                float *matrices);
// `to` = `from` after a token, which may be the same; its outputs, if they are wanted.
void recurrent_step(const RecurrentLayout &layout, const RecurrentItem &item, const RecurrentToken &token,
                const float *from, float *to, float *out);
// Mixes inputs [channels, ..., steps] by what the tokens before have brought; `window` are
// taps - 1 of them, the own ones are read behind.
void mix_inputs(const RecurrentLayout &layout, const Layer &layer, bool in_bf16,
                const float *const *window, const float *channels, const float *steps, float *mixed);
