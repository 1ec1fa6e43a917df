// A model's packed weights, and its forward pass as a job of the pool.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "attention/attention.h"
#include "forward/adapters.h"
#include "matrix/packing.h"
#include "matrix/stored.h"
#include "threads/meeting.h"
#include "threads/pool.h"

// A model. Of these structs and enumerations library.py reads what is in them.
struct Shape {
    int32_t vocab, hidden, layers, heads, kv_heads, head_size, ffn;
    int32_t format;               // of the matrices
    int32_t in_bf16;              // intermediate values are rounded to bf16
    int32_t kv_format;            // a row of attention/kv_formats.cpp
    int32_t norm;                 // NormKind
    int32_t activation;           // Activation
    int32_t is_gated;             // the FFN has a matrix of gates
    int32_t is_parallel;          // attention and FFN read the same norm
    int32_t head_norm;            // HeadNorm
    int32_t norms_after_rotation; // of heads
    int32_t rotary_rounding;      // RotaryRounding
    int32_t rotary_pairs[2];      // of a head's first dimensions, (i, i + pairs)
    int32_t rotary_count;
    int32_t experts, experts_used, expert_ffn;  // of layers that have some
    int32_t experts_sigmoid;      // scores are sigmoids, not shares
    int32_t experts_sum_to_one;   // the weights of a token's, else they are shares of all
    int32_t shared_ffn;           // of what every token has beside them; 0: nothing
    int32_t shared_is_gated;      // by one more row of the router
    int32_t taps;                 // tokens that a convolution sees, the own one last
    int32_t recurrent_key_heads, recurrent_value_heads, recurrent_key_size, recurrent_value_size;
    int32_t recurrent_taps;
    int32_t recurrent_rule;       // Rule
    int32_t recurrent_takes_turns;       // value heads of one key head lie apart
    int32_t has_output_gate;      // what is attended to is gated
    int32_t kept_tiles;           // of a text's beginning, seen beside windows; rotaries are plain
    int32_t sees_all;             // a window has as many positions behind a token as before it
    int32_t layer_input;          // size of the embedding that each layer has of its own; 0: none
    float experts_scale;          // of the weights of a token's
    float norm_epsilon;
    float embedding_multiplier, residual_multiplier, logit_scale;
    float logit_softcap, attention_softcap;     // 0: none
    float attention_scale;        // 0: 1 / sqrt(head_size)
    float gate_limit, gate_slope; // of clamped gates
    float temperature_beta, temperature_length; // queries times 1 + beta ln(1 + floor(p / length))
    float rotary_magnitudes[2];
    float layer_input_multiplier; // of these embeddings
    int router_rows() const { return experts + shared_is_gated; }
    int angles() const { return rotary_pairs[0] + rotary_pairs[1]; }
    int inputs_width() const { return layers * layer_input; }
};

// What is one layer's own.
struct LayerShape {
    int32_t window;               // positions that a token sees at most, itself included; 0: all
    int32_t rotary;               // which of the model's; -1: none
    int32_t has_experts;
    int32_t mixer;                // Mixer
    int32_t kv_heads, head_size;  // 0: the model's, or the rank's
    int32_t ffn;                  // 0: the same
    int32_t kv_from;              // the layer whose keys and values it reads; -1: its own
    int32_t keys_are_values;      // values are what keys are made of
    int32_t plane;                // of the pages, its first
    int32_t group_plane;          // the same where layers with windows have their own
};

enum class Mixer { attention, convolution, recurrence };
enum class Rule { delta, mamba };   // of a recurrence
enum class NormKind { rms, rms_rounded_once, layer };
enum class Activation { silu, gelu_tanh, relu_squared, clamped_silu };
// Of each head, with the same weights or with its own; over all heads.
enum class HeadNorm { shared, projection, each };
enum class RotaryRounding { all, angles, result };  // of bf16

// What one of several ranks computes of each product's columns. Every rank has all of what a product
// reads, so that a column is the same sum wherever it is computed.
struct Shard {
    Span heads, kv_heads, hidden, ffn, vocab;
};

// One sequence's tokens in a batch, and the slots of its recurrent state; -1 is no slot.
struct StateRow {
    int32_t first, count;                // known tokens
    int32_t nodes;                       // of a draft tree, behind them
    int32_t start;                       // position of the first
    int32_t source, target;              // slots that are read and written
    int32_t first_save, saves;           // in the batch's (position, slot)
};

// An accepted path of the latest batch.
struct PathRow {
    const int32_t *nodes, *wanted;       // by number in the batch; (position, slot) to write too
    int32_t count, saves, target, position;
};

// The arrays are those of model/batch/batch.py.
struct Batch {
    const int32_t *tokens, *positions, *slots, *row_starts, *kv_lengths, *block_tables;
    const int64_t *ancestors;
    const int32_t *outputs;              // those with logits first; ascending, and then the others
    void *keys, *values;
    float *logits;
    float *states;                       // of the outputs, as the head reads them; or null
    const int32_t *adapters;             // by row, -1 for none; or null
    const int32_t *seen;                 // by token, how many slots of its row it sees; or null
    // Of layers with windows, where they have blocks of their own; else null. Tables are as wide.
    const int32_t *window_slots, *window_tables;
    void *window_keys, *window_values;
    const float *hidden_in;              // what an earlier stage has come to; null: embed the tokens
    float *hidden_out;                   // for a later stage; null: this one has the head
    int32_t token_count, row_count, table_width, output_count, logit_count;
    int32_t block_count, window_block_count, block_size;
    int32_t slot_bytes, window_slot_bytes;      // of the keys of one token
    int32_t layers;                      // to run; of fewer than all no logits are computed
    int32_t state_row_count;
    int64_t state_numbers;               // of a slot
    float *state_slots;                  // [slots][state_numbers]
    const StateRow *state_rows;
    const int32_t *state_parents;        // by token, of nodes: a node of the same row, or -1
    const int32_t *state_saves;          // (position, slot)
    float *kept;                         // of the outputs, before some layers, side by side
    const int32_t *kept_layers;          // ascending
    int64_t kept_count;
    int32_t position_count;              // of a token: 1, or one for each pair that turns
    int32_t both_ways;                   // whether windows are around a token's position
    // What is added behind each of the first layers, [added_layers][added_count][hidden].
    const float *added;
    const int32_t *added_rows;           // by token, the row that is added to it; -1: none
    int32_t added_layers, added_count;
};

enum class Part {
    qkv, output, gate_up, down, head, embedding, router, expert_gate_up, expert_down,
    input_projection, input_gate, input_output, input_embedding
};
enum class Vector {
    attention_norm, ffn_norm, query_norm, key_norm, norm, after_attention, after_ffn, taps, sinks,
    decay, step_bias, gated_norm, choice_bias, skip, value_norm, after_input, scalar, input_norm,
    expert_norm, after_experts, after_dense, router_norm, expert_scales
};

// Norms are weights, then biases where there are any; empty where a layer has none.
struct Layer {
    Matrix qkv, output, gate_up, down;
    Matrix router;                       // of floats whatever the others are
    std::vector<Matrix> expert_gate_up, expert_down;
    std::vector<float> attention_norm, ffn_norm, query_norm, key_norm, after_attention, after_ffn;
    std::vector<float> taps;             // of a convolution: [taps][channels], maybe a row of biases
    std::vector<float> sinks;            // [heads], scores of nothing; or empty
    std::vector<float> choice_bias;      // [experts], added where they are chosen; or empty
    // Of experts that read the hidden state by norms of their own, beside an FFN; or empty.
    std::vector<float> expert_norm, after_experts, after_dense, router_norm;
    std::vector<float> expert_scales;    // [experts], factors of their weights; or empty
    std::vector<float> decay, step_bias, gated_norm, skip;   // of a recurrence
    std::vector<float> value_norm;       // ones; or empty
    Matrix input_gate, input_output;     // of the layer's own embedding
    std::vector<float> after_input;      // the norm of what that adds
    std::vector<float> scalar;           // of the hidden state behind the layer; or empty
    std::vector<float> forms, learnt;    // of its KV heads; those that are yet to count
    LayerShape shape;
    int view = 0;                        // in the model's views
    int number = 0;                      // among those that recur
    const float *form(const AttentionShape &attention, int kv_head) const {
        return forms.data() + kv_head * attention.kv->form_size(attention.head_size);
    }
    void begin_forms(const AttentionShape &attention);
    bool attends() const { return static_cast<Mixer>(shape.mixer) == Mixer::attention; }
    bool has_window() const { return attends() && shape.window > 0; }
    bool stores() const { return shape.kv_from < 0; }
    bool scans() const { return static_cast<Mixer>(shape.mixer) == Mixer::recurrence; }
    bool convolves() const { return static_cast<Mixer>(shape.mixer) == Mixer::convolution; }
};

// How some layers attend.
struct View {
    LayerShape of;                       // of one of them
    AttentionShape shape;
};

// Rows of an embedding: the caller's, or stored, or those of a stored head.
struct Embedding {
    const void *rows = nullptr;          // null: they are stored
    bool is_bf16 = false;
    Matrix stored;
    void get(int token, int size, const Matrix &tied, float *values) const;
};

// What the nodes of the latest batch have brought to recurrent layers.
struct KeptInputs {
    Memory memory;
    int capacity = 0, width = 0;
    void reserve(const struct Model &model, int nodes);
    float *inputs(int number, int node) {
        return memory.as<float>() + (static_cast<size_t>(number) * capacity + node) * width;
    }
};

// Buffers of one forward pass, grown to the largest batch seen.
struct Workspace {
    int rows = 0, outputs = 0;
    Memory hidden, delta, qkv, attended, gated, cosine, sine, partial;
    Memory turn_cosine, turn_sine;       // where tiles are kept beside windows
    Operand normal, attention, mixed, ffn, last;
    Operand unquantised[ADAPTED_PARTS];  // of rows with adapters, where matrices read blocks
    Operand inner[ADAPTED_PARTS];        // what A has come to
    Memory inputs, scanned;              // of a recurrence
    std::vector<Memory> slabs;           // by thread
    Memory layer_inputs;
    Memory scores, weights, contributions, expert_gated;
    std::vector<int32_t> chosen;         // experts of each row, ascending
    Operand routed, expert_in, expert_ffn;
};

struct Model {
    Shape shape;                         // the whole model's, but for the number of layers
    Shard shard;
    Meeting *meeting = nullptr;          // with the ranks that have the other columns
    Pool &pool;
    Arena arena;
    std::vector<float> inverse_frequencies;     // of each rotary, one a pair
    std::vector<View> views;             // of the layers, each once
    std::vector<Layer> layers;
    std::vector<Adapter> adapters;
    int adapted_ranks = 0;               // of the adapters' parts at most
    std::vector<float> norm;
    Matrix head;
    Embedding embedding, input_embedding;       // [vocab, hidden], [vocab, layers * layer_input]
    Matrix input_projection;             // of the first to what the second is added to
    std::vector<float> input_norm;
    Workspace workspace;
    struct {
        int inputs, mixed, ffn;
    } widths{};                          // of the widest layer
    int recurrent_layers = 0;
    bool learns = false;                 // how keys are kept, from each batch
    KeptInputs kept;
    std::vector<std::unique_ptr<AttentionScratch>> scratch;

    Model(Pool &pool, const Shape &shape, const LayerShape *layers, const float *frequencies);
    AttentionShape attention(const LayerShape &of) const;
    const AttentionShape &attention(int layer) const { return views[layers[layer].view].shape; }
    AttentionShape widest_attention() const;
    // Begins to learn how keys are kept, or ends it: what was learnt counts from then on.
    void learn(bool begins);
    Format format() const { return static_cast<Format>(shape.format); }
    // Rows of the matrix of queries, keys and values; what a token's take once they are computed.
    int qkv_rows(const LayerShape &of) const;
    int qkv_width(const LayerShape &of) const;
    // Of layers that do not attend: what goes in, gates too, and what tokens come to.
    int own_inputs() const;
    int own_mixed() const;
    // What rows have room for; asked for each row, so found once.
    int inputs_width() const { return widths.inputs; }
    int mixed_width() const { return widths.mixed; }
    int ffn_width() const { return widths.ffn; }
    int widest(int (Model::*width)(const LayerShape &) const) const;
    int ffn_parts() const { return shape.is_gated ? 2 : 1; }
    int attended_width(const LayerShape &of) const {
        return shape.heads * (of.head_size ? of.head_size : shape.head_size);
    }
    // Of the FFN that all tokens have, on all ranks.
    int ffn_size(const LayerShape &of) const { return of.ffn ? of.ffn : shape.ffn; }
    // Has this rank compute some columns alone; before any matrix is set.
    void split(const Shard &shard, Meeting *meeting);
    // What all matrices take in an arena; kinds are of stored ones, if all are of two.
    size_t arena_bytes(Kind kind, Kind head_kind) const;
    // Of that, what routers take: they are no stored matrices.
    size_t router_bytes() const;
    // `expert` counts for an expert's parts alone.
    void set_matrix(int layer, Part part, int expert, const Source &source);
    // Of parts one above the other, as files have them.
    void set_stored(int layer, Part part, int expert, const std::vector<StoredPart> &parts, int k,
                    const float *bias);
    void set_vector(int layer, Vector which, const float *values, int size);
    // Adds an adapter behind those there are; once all matrices are set.
    void add_adapter(const std::vector<AdapterModule> &modules);
    std::array<TileColumns, ADAPTED_PARTS> columns_of(const Layer &layer) const;
    Format adapter_format() const {
        return format() == Format::fp32 ? Format::fp32 : Format::bf16;
    }
    Matrix &place(int layer, Part part, int expert);
    void embed(int token, float *values) const {
        embedding.get(token, shape.hidden, head, values);
    }
    int dense_ffn(const Layer &layer) const {
        if (layer.shape.has_experts) return shape.shared_ffn;
        return layer.shape.ffn ? layer.shape.ffn : shard.ffn.count;
    }
    void reserve(int rows, int outputs);
    void reserve_experts(int rows);
    void reserve_adapters(int rows);
    void reserve_scans(int rows);
    // Returns null, or why the batch cannot be run.
    const char *refusal(const Batch &batch) const;
    void forward(const Batch &batch);
    // Takes states of the latest batch along accepted nodes.
    void advance(const Batch &batch, const PathRow *rows, int count);
    int recurrent_layer(int number) const;
    // The forward pass's matrix products alone, on whatever the buffers hold: for measuring.
    void linears(int rows, int outputs);
};
