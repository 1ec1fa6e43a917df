// One forward pass as a job. Every stage works on rows, or on tiles of columns; no stage lets one
// row see another, except attention, and that only through positions.
//
//     stage   0      1 ..............................................................
//             embed  (inputs norm) norm qkv rope attend (put) output (norm) norm (router route)
//             gate-up (put) down ((norm) in up (put) down combine) (norm) (gate (put) output norm)
//
// and at last norm, head. Norms of what is added stand where a layer has them; so do experts, of
// which each row has a few: the rows of an expert are multiplied together (experts.cpp).
// In the last layer that stores keys and values all rows have some; what follows those is for rows
// with logits alone. In the first layer the inputs of all layers are made, where they have some, and
// behind each layer its own is added.
#pragma once

#include <algorithm>
#include <atomic>
#include <vector>

#include "forward/recurrence.h"
#include "forward/model.h"

enum Step {
    INPUTS, INPUTS_NORMED, ATTENTION_NORM, QKV, ROPE, ATTEND, ATTENDED, OUTPUT, MIXED, FFN_NORM, ROUTER, ROUTE, GATE_UP,
    GATED, DOWN, EXPERT_NORM, EXPERT_IN, EXPERT_UP, EXPERT_GATED, EXPERT_DOWN, COMBINE, FED, INPUT_GATE,
    INPUT_GATED, INPUT_OUTPUT, INPUT_ADDED, STEPS
};

// Tokens in a batch at most for rows to share tiles: of more the partial results grow too large.
constexpr int SHARING_TOKENS = 64;
// Tokens in a batch at most for whose products threads take items in runs: those wait for memory.
// Products of more tokens wait for arithmetic, and take up to 6 % longer in runs.
constexpr int RUN_TOKENS = 8;
// Query heads in a batch at most that attention has too few products for to wait for anything but
// memory.
constexpr int STREAMED_ROWS = 12;
// Rows whose activations stay in a core's L2 while it goes through the tiles.
constexpr int GROUP_ROWS = 128;

// An item, and the one that its thread probably runs next; -1: none.
struct Turn {
    int item, next;
};

// A matrix that adapters may have a part for.
struct Adapted {
    int layer = -1;
    Part part = Part::qkv;
    bool is_any() const { return layer >= 0; }
};

struct Forward : Job {
    Model &model;
    const Shape &shape;
    const Batch &batch;
    Workspace &space;
    const bool in_bf16;                  // intermediate values are rounded to bf16
    const bool only_products;            // for measuring
    const int layers;                    // that are run
    int last_stored = 0;                 // of these

    Forward(Model &model, const Batch &batch, bool only_products);
    int open(int stage) override;
    void run(int stage, int item, int thread) override;
    bool is_even(int stage) override {
        return is_product(stage) && batch.token_count <= RUN_TOKENS;
    }

    // forward.cpp: the order of things
    bool is_product(int stage) const;
    bool gather_before(int stage);
    bool gather_hidden(int layer);
    int items_of(int stage);
    int items_of_step(int stage, int layer, int step);

    // The rows of a layer behind its keys and values, numbered as operands have them.
    std::vector<int> numbers;            // by token, of those with logits; empty if all have some
    bool is_narrow(int layer) const { return layer >= last_stored && !numbers.empty(); }
    // Of a layer behind that one, whose queries too are those of rows with logits.
    bool is_narrow_before(int layer) const { return layer > last_stored && !numbers.empty(); }
    int count_at(int layer) const {
        return is_narrow(layer) ? batch.output_count : batch.token_count;
    }
    int token_at(int layer, int number) const {
        return is_narrow(layer) ? batch.outputs[number] : number;
    }
    int count_before(int layer) const {
        return is_narrow_before(layer) ? batch.output_count : batch.token_count;
    }
    int token_before(int layer, int number) const {
        return is_narrow_before(layer) ? batch.outputs[number] : number;
    }
    int number_at(int layer, int token) const { return is_narrow(layer) ? numbers[token] : token; }
    // Whether a layer has no queries: then its keys and values are all that is computed.
    bool is_unread(int layer) const { return is_narrow(layer) && batch.output_count == 0; }

    // rows.cpp: what is done to one token
    int rows_or_serial(int stage, int count);
    int rows_at(int stage) const;
    void run_rows(int stage, int item);
    void run_span(int stage, int first, int count);
    void run_row(int stage, int row);
    void quantise(::Part part, int row, const float *values, Operand &to);
    void embed(int row);
    void keep(int layer);
    void add_given(int layer, int row);
    int hand_on();
    void normalise(const float *in, const float *weight, int size, bool biased, float *out) const;
    void norm(const std::vector<float> &weight, int row, Operand &to, int to_row,
              float *kept = nullptr);
    void norm_for_ffn(const Layer &layer, int token, int row);
    void norm_for_experts(const Layer &layer, int token, int row);
    void add_normed(const std::vector<float> &weight, int index, int row);
    void add_to_hidden(float *values, int count, float *to) const;
    void add_scaled(const Layer &layer, int index, int row);
    void norm_heads(const Layer &layer, const AttentionShape &attention, float *heads,
                    int first) const;
    void heat_queries(float *heads, int count, int row) const;
    void rope(const Layer &layer, int index, int row);
    void turn(int row);

    // inputs.cpp: embeddings that layers have of their own
    void multiply_inputs(Turn turn);
    void norm_inputs(int row);
    void multiply_input_gate(int layer, Turn turn);
    void add_input(int layer, int row);
    float *layer_inputs(int row) {
        return space.layer_inputs.as<float>() + row * width(shape.inputs_width());
    }

    // convolution.cpp: what is done to a token and the few before it
    std::vector<int64_t> tap_slots;      // by token, of those before it; -1: before the text
    void find_taps();
    int piece_size() const;              // of a token's inputs, as many as there are keys
    void *inputs_at(int layer, int64_t slot, int piece) const;
    void store_inputs(int layer, int row);
    void convolve(int layer, int number);

    // adapt.cpp: what rows with adapters have beside the model's matrices
    std::vector<const Adapter *> adapters;       // by token, null for none; empty if no row has one
    std::vector<const Adapter *> used_adapters;  // each once
    void spread_adapters();
    const AdapterPart *part_of(int layer, ::Part part, int row) const;
    bool adapts(int layer, ::Part part) const;
    // Calls `each(part, first row, rows)` for rows side by side that have the same adapter.
    template <class Each>
    void each_run(int layer, ::Part part, int first, int count, int most, Each each) const;
    const Operand &input_of(::Part part) const;
    void put_unquantised(::Part part, int row, const float *values);
    void multiply_a_after(int stage, int first, int count);
    void fetch_adapters(Adapted of, int tile) const;
    void add_adapters(Adapted of, int tile, int first, int count, float *out) const;
    // scan.cpp: what is done to the tokens of a row one after the other
    std::vector<int> parents;            // by token, the one before it in the batch; -1: none
    std::vector<int> state_rows, node_numbers;   // by token; -1: none
    void find_parents();
    void find_window(int layer, int token, const float **window);
    void mix_token(int layer, int token);
    int scan_items() const;
    void store_window(int layer, int token, float *slot);
    void scan(int layer, int item, float *slabs);
    void gate_scanned(int layer, int number);
    void gate_heads(int layer, int token, float *to);
    void gate_groups(int layer, int token, float *to);
    float *mixed(int token) {
        return space.inputs.as<float>() + token * width(RecurrentLayout(shape).mixed());
    }
    float *scanned(int token) { return space.scanned.as<float>() + token * width(model.own_mixed()); }

    // experts.cpp: what is done to the rows of an expert
    struct ExpertRows {
        int expert, first, count;        // in the order of `places`
        int first_up, first_down;        // items before
    };
    struct ExpertItem {
        const ExpertRows *rows;          // null of none
        int tile, group;
    };
    std::vector<int> places;             // of (row, one of its experts), by expert
    std::vector<int> expert_starts;
    std::vector<ExpertRows> expert_rows; // of those that have some
    int up_items = 0, down_items = 0;
    int place_count(int layer) const { return count_at(layer) * shape.experts_used; }
    void multiply_router(int layer, Turn turn);
    float score_experts(float *score) const;
    void choose_experts(int layer, const float *score, int32_t *best) const;
    void route(int layer, int row);
    int open_experts(int layer);
    void gather_expert(int item);
    ExpertItem up_item(int layer, int item) const;
    ExpertItem down_item(int layer, int item) const;
    void multiply_expert_up(int layer, Turn turn);
    void multiply_expert_down(int layer, Turn turn);
    void put_expert_gated(int place, int column, int count, const float *values);
    void combine(int layer, int row);
    float *scores(int row) { return space.scores.as<float>() + row * width(shape.router_rows()); }
    float *weights(int row) {
        return space.weights.as<float>() + row * width(shape.experts_used + 1);
    }
    // Of what every token has beside its experts.
    float &shared_weight(int row) { return weights(row)[shape.experts_used]; }
    int32_t *chosen(int row) { return &space.chosen[row * shape.experts_used]; }
    float *contribution(int place) {
        return space.contributions.as<float>() + place * width(shape.hidden);
    }
    float *expert_gated(int place) {
        return space.expert_gated.as<float>() + place * width(shape.expert_ffn);
    }

    // products.cpp: what is done to 48 columns
    // Calls `each(first row, rows, pass, passes)` for as many rows as a kernel takes, evenly.
    template <class Each>
    static void in_passes(const Matrix &matrix, int rows, int group, Each each);
    // Of one pair of tiles, gate and up, `put(row, values)` the products of the two.
    template <class Put>
    void multiply_gates(const Matrix &matrix, const Operand &operand, int first_row, int rows,
                        int pair, int group, Upcoming next, Upcoming next_up, Put put,
                        Adapted adapted = {});
    static Upcoming upcoming(const Matrix &matrix, int tile);
    // Calls `each(row, columns, results of that row)` for an item of a product, bias added; there
    // are 48 results, and of a stored matrix's last columns fewer.
    template <class Each>
    void products(const Matrix &matrix, const Operand &operand, int rows, Turn turn, Each each,
                  int first_tile = 0, Adapted adapted = {});
    int first_qkv_tile(int layer) const;
    void multiply_qkv(int layer, Turn turn);
    void multiply_into_hidden(Adapted of, int layer, const Matrix &matrix, const Operand &operand,
                              Turn turn, bool is_normed);
    void multiply_gate_up(int layer, Turn turn);
    void multiply_up(int layer, Turn turn);
    void weigh_shared(int row, float *out);
    void put_gated(int row, int column, int count, const float *values);
    void multiply_head(Turn turn);

    // attend.cpp: what is done to the tokens of a row
    struct Part {                        // of a block's context
        int kv_head, kv_heads;           // the first, and how many
        int tile;
    };
    struct Split {
        int first, last;                 // blocks that have this part in common
        Part part;
    };
    std::vector<int64_t> ancestors;      // of masked rows, -1 spelt out
    // Few blocks are split tile by tile between threads; the last to finish a block merges. So are
    // blocks of several rows with a common prefix, as the branches of a search have: each tile of
    // it is gathered once, and every row still adds up its own tiles in their order.
    struct Cut {
        std::vector<Block> blocks;
        std::vector<Split> splits;
        std::vector<size_t> rows_before;     // in the partial results, by block and head
        std::vector<std::atomic<int>> pending;
        size_t partial_rows = 0;
    };
    std::vector<Cut> all, narrow;        // by view; narrow: of the tokens with logits
    Cut &cut_of(int layer) {
        return (is_narrow(layer) ? narrow : all)[model.layers[layer].view];
    }
    void spell_out_ancestors();
    void cut(std::vector<Cut> &cuts, bool only_outputs);
    void cut_into_blocks(Cut &cut, const View &view, bool only_outputs);
    bool takes_whole_tiles(const AttentionShape &attention, int positions) const;
    void cut_into_splits(Cut &cut, const AttentionShape &attention);
    int open_attention(int layer);
    void learn_forms(Layer &layer, const AttentionShape &attention);
    Lane lane(int layer, int kv_head) const;
    const float *turned(int token, int size, const float *head, float *to);
    void load_heads(int layer, const Block &block, int kv_head, int tile,
                    AttentionScratch &scratch);
    void look_ahead(int layer, const Block &block, const Part &part, Ahead &ahead) const;
    void attend(int layer, int item, AttentionScratch &scratch);
    Partial partial_of(const Cut &cut, int padded, int lane, int tile, int rows);
    void attend_split(int layer, int item, AttentionScratch &scratch);
    void attend_heads(Cut &cut, int layer, const Split &split, int kv_head,
                      AttentionScratch &scratch);
    float total_of(int layer, int head, const Partial &sum, int row) const;
    void gate(const AttentionShape &attention, int token, int column, float *out);
    void finish(int layer, const Block &block, int kv_head, const Partial &sum);

    // Where things are.
    float *hidden(int row) { return space.hidden.as<float>() + row * width(shape.hidden); }
    float *qkv(int row) { return space.qkv.as<float>() + row * width(model.inputs_width()); }
    float *attended(int row) {
        return space.attended.as<float>() + row * width(model.mixed_width());
    }
    float *gated_row(int row) { return space.gated.as<float>() + row * width(model.ffn_width()); }
    float *delta(int row) { return space.delta.as<float>() + row * width(shape.hidden); }
    int angles() const { return shape.angles(); }
    float *cosine(int row) { return space.cosine.as<float>() + row * width(angles()); }
    float *sine(int row) { return space.sine.as<float>() + row * width(angles()); }
    float *turn_cosine(int row) {
        return space.turn_cosine.as<float>() + row * width(shape.rotary_pairs[0]);
    }
    float *turn_sine(int row) {
        return space.turn_sine.as<float>() + row * width(shape.rotary_pairs[0]);
    }
    // Whether results go into an operand as they are computed; else as rows, once they are whole.
    bool goes_straight(const Operand &operand) const {
        return operand.elementwise() && !model.meeting;
    }
    static size_t width(int columns) { return round_up(columns, TILE); }
    // Whether a layer's keys and values are in the blocks of those with windows.
    bool is_apart(int layer) const {
        return batch.window_keys && model.layers[layer].has_window();
    }
    size_t slot_index(int layer, size_t slot) const {
        const LayerShape &own = model.layers[layer].shape;
        const size_t plane = batch.window_keys ? own.group_plane : own.plane;
        const size_t blocks = is_apart(layer) ? batch.window_block_count : batch.block_count;
        return plane * blocks * batch.block_size + slot;
    }
    int32_t page_slot(int layer, int row) const {
        return is_apart(layer) ? batch.window_slots[row] : batch.slots[row];
    }
    void *keys_of(int layer) const { return is_apart(layer) ? batch.window_keys : batch.keys; }
    void *values_of(int layer) const {
        return is_apart(layer) ? batch.window_values : batch.values;
    }
    size_t slot_bytes(int layer) const {
        return is_apart(layer) ? batch.window_slot_bytes : batch.slot_bytes;
    }
    // One of this rank's heads in a slot: the pages have those of all ranks.
    void *at_head(void *base, int layer, size_t slot, int head) const {
        const size_t before = model.shard.kv_heads.first + head;
        return static_cast<uint8_t *>(base) + slot_index(layer, slot) * slot_bytes(layer) +
               before * model.attention(layer).head_bytes();
    }
    static int groups(int rows) { return (rows + GROUP_ROWS - 1) / GROUP_ROWS; }
    static int tiles(const Matrix &matrix, int rows) { return matrix.tiles * groups(rows); }
};
