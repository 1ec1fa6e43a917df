// Paged attention over tiles of 128 logical positions.
//
//     logical position p of a token   0 .. prefix | prefix .. length
//     lives in slot                   p           | the p-th of its ancestors, in slot order
//
// A token's tile t covers the logical positions 128 t .. 128 t + 128 whatever slots they lie in:
// each tile is its own softmax from nothing, and tiles are merged in ascending order. So the bits
// do not depend on how the context was cut into rounds, nor on where a tree put its nodes.
#pragma once

#include <algorithm>
#include <vector>

#include "attention/kv_formats.h"
#include "matrix/matrix.h"
#include "simd/simd.h"
#include "threads/memory.h"

constexpr int SPAN = 128;         // logical positions in a tile
constexpr int QUERY_ROWS = 48;    // query heads of a block's tokens, at most (or one token's)
constexpr int NODES_MAX = 63;     // tokens of a row with ancestors
// Keys side by side: a tile's positions, or all slots that the nodes of a tree see of one.
constexpr int COLUMNS_MAX = SPAN + NODES_MAX + 1;

struct AttentionShape {
    int heads, kv_heads, head_size;
    const KvFormat *kv;
    float scale;                  // of scores
    float softcap;                // c: scores become c tanh(score / c); 0: they stay
    bool in_fp32() const { return kv->in_fp32; }
    size_t head_bytes() const { return kv->head_bytes(head_size); }
    int group() const { return heads / kv_heads; }
    int padded() const { return round_up(head_size, 32); }
    int tokens_per_block() const { return group() >= QUERY_ROWS ? 1 : QUERY_ROWS / group(); }
};

// One row of a batch: its block table and the sizes that turn a position into a slot.
struct Row {
    const int32_t *blocks;
    int block_size;
    int prefix;                   // committed positions before the row's first new token
    int64_t slot(int position) const {
        unsigned at = static_cast<unsigned>(position), size = static_cast<unsigned>(block_size);
        return static_cast<int64_t>(blocks[at / size]) * size + at % size;
    }
    // The slots of positions first .. first + count, times `stride`; without a division for each.
    void slots(int first, int count, int64_t stride, int64_t *out) const {
        for (int done = 0; done < count;) {
            int64_t at = slot(first + done) * stride;
            int left = block_size - (first + done) % block_size;
            for (int end = left < count - done ? done + left : count; done < end; done++) {
                out[done] = at;
                at += stride;
            }
        }
    }
};

// Tokens begin .. end of one row (numbers within the row), one KV head, tiles first .. last.
struct Block {
    Row row;
    int begin, end;
    int first;                    // where the row's tokens begin in the batch
    const int64_t *ancestors;     // [end - begin], or null: plain causal order
    const int32_t *seen;          // [end - begin] lengths, ascending, or null: no slot is left out
    int window;                   // positions that a token sees at most, itself included; 0: all
    int kept;                     // tiles at the text's beginning that every token sees beside them
    const int32_t *places;        // [end - begin] positions, where a window has as many behind a token
    int length(int token) const;  // where the positions end that the token sees, itself included
    int length_max() const;
    int first_seen(int token) const {
        if (!window) return 0;
        return std::max(0, (places ? places[token - begin] + 1 : length(token)) - window);
    }
    // Tiles that some token sees: those kept, then from the first of a window on.
    //
    //     0 .. head() | not seen | window_tile() .. tile_count()
    int window_tile() const;
    int head() const { return std::min(kept, window_tile()); }
    int tiles() const;
    bool has_tile(int tile) const;
    int tile_at(int index) const {
        return index < head() ? index : index - head() + window_tile();
    }
    int index_of(int tile) const { return tile < head() ? tile : tile - window_tile() + head(); }
};

// The running result of some query rows: unnormalised output, largest score, sum of exponentials.
struct Partial {
    float *output;                // [rows][padded]
    float *largest;               // [rows]
    float *total;                 // [rows]
};

// What is fetched into the L2 cache while a tile is attended to: the keys and values of the tile
// that the thread is expected to take next. A few lines at a time, between the multiplications: a
// core waits for so many lines only, and what it waits for is in nobody's way then.
struct Ahead {
    const uint8_t *rows[2 * SPAN];    // of keys, then of values: a position's heads side by side
    int count = 0, bytes = 0;         // of the rows, and of one
    int row = 0, byte = 0;            // what comes next
    int pace = 0;                     // lines at a time

    void some() {
        for (int line = 0; line < pace && row < count; line++) {
            native::prefetch(rows[row] + byte);
            byte += 64;
            if (byte >= bytes) byte = 0, row++;
        }
    }
};

// Steps of a loop between two times that something is fetched.
constexpr int AHEAD_STEPS = 2;

// A thread's working memory.
struct AttentionScratch {
    Ahead ahead;
    Memory memory;
    uint8_t *keys, *copied;       // [pair of inputs][COLUMNS_MAX][2], [COLUMNS_MAX][padded]; or floats
    uint8_t *widened;             // keys or values in bf16, [COLUMNS_MAX][head_size]
    uint8_t *queries, *query;     // of all KV heads, [head][rows][padded]; those of one
    float *turned;                // queries of the tiles that are kept, [rows][padded]
    float *scores, *probabilities;    // [rows][COLUMNS_MAX], [rows][SPAN]
    float *key_scales, *value_scales;  // of formats that have them, [COLUMNS_MAX]
    Taken *takens, *taken;        // likewise, [head][rows], [rows]
    size_t rows, row_bytes;       // of a head's queries at most, of one
    Partial tile;
    std::vector<Partial> sums;    // by KV head
    const uint8_t *values;        // what is read: in the pages, widened or copied
    int64_t value_offsets[COLUMNS_MAX];
    // What keys and values hold: 0 positions mean nothing that could be used again.
    int gathered = 0;
    const void *gathered_lane = nullptr;
    int64_t gathered_offsets[COLUMNS_MAX];
    AttentionScratch(const AttentionShape &shape);
    void select(int kv_head) {
        query = queries + kv_head * rows * row_bytes, taken = takens + kv_head * rows;
    }
};

int tile_count(const Block &block);

// How many times something is fetched while few rows attend to one head of a whole tile.
int fetches_per_head(const AttentionShape &shape);

// Puts the query heads [tokens][group][head_size] (float) of a block into the scratch, where the
// selected KV head's are, as its form has them.
void load_queries(const AttentionShape &shape, const float *const *heads, int rows,
                  const float *form, AttentionScratch &scratch);

// Attends to one tile and leaves its result in scratch.tile; the total of a row that sees none of
// it is 0.
void attend_tile(const AttentionShape &shape, const Block &block, const Lane &lane, int tile,
                 AttentionScratch &scratch);

// Merges the rows of `tile` into `sum`; the first tile that a row sees is copied.
void merge(const AttentionShape &shape, const Partial &sum, const Partial &tile, int rows,
           bool is_first);
