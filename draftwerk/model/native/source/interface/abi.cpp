// The C interface that library.py loads, with the types that are declared here and in headers.
// Handles are plain pointers; failures come back as text.
#include <new>

#include "draft_head/draft_tree.h"
#include "forward/copies.h"
#include "forward/model.h"
#include "sampling/answers.h"
#include "sampling/logprobs.h"
#include "sampling/sampler.h"
#include "interface/measure.h"

namespace {

constexpr const char *LOST = "a rank was lost";

// Independent items, one stage.
template <class Each>
struct Items : Job {
    int count;
    Each each;
    Items(int count, Each each) : count(count), each(each) {}
    int open(int stage) override { return stage == 0 && count ? count : -1; }
    void run(int, int item, int thread) override { each(item, thread); }
};

// Returns why the work could not be done, or null.
template <class Work>
const char *unless_full(Work work) {
    try {
        work();
    } catch (const std::bad_alloc &) {
        return "out of memory";
    }
    return nullptr;
}

}  // namespace

extern "C" {

void *pool_create(int threads) { return new Pool(threads); }
void pool_destroy(void *pool) { delete static_cast<Pool *>(pool); }

void *model_create(void *pool, const Shape *shape, const LayerShape *layers,
                   const float *inverse_frequencies) {
    return new Model(*static_cast<Pool *>(pool), *shape, layers, inverse_frequencies);
}
void model_destroy(void *model) { delete static_cast<Model *>(model); }

// Of matrices that are stored, kinds are those of the layers' and of the head.
int64_t model_arena_bytes(void *model, int kind, int head_kind) {
    const Model &of = *static_cast<Model *>(model);
    return static_cast<int64_t>(
        of.arena_bytes(static_cast<Kind>(kind), static_cast<Kind>(head_kind)));
}

// Has matrices set from now on in `base`, which outlives the model; where it is packed already,
// their data may be null.
void model_use_arena(void *model, void *base, int64_t bytes, int is_packed) {
    static_cast<Model *>(model)->arena = {static_cast<uint8_t *>(base),
                                          static_cast<size_t>(bytes), 0, is_packed != 0};
}

// Of the arena, what matrices have taken.
int64_t model_arena_used(void *model) {
    return static_cast<int64_t>(static_cast<Model *>(model)->arena.used);
}

int64_t model_router_bytes(void *model) {
    return static_cast<int64_t>(static_cast<Model *>(model)->router_bytes());
}

void model_set_matrix(void *model, int layer, int part, int expert, const void *data, int is_bf16,
                      int n, int k, const float *bias) {
    Source source{data, is_bf16 != 0, n, k, bias};
    static_cast<Model *>(model)->set_matrix(layer, static_cast<Part>(part), expert, source);
}

// Parts of a matrix as a file has them; where the arena is packed, they may be without data.
void model_set_stored(void *model, int layer, int part, int expert, const StoredPart *parts,
                      int count, int k, const float *bias) {
    static_cast<Model *>(model)->set_stored(layer, static_cast<Part>(part), expert,
                                            {parts, parts + count}, k, bias);
}

void model_set_vector(void *model, int layer, int which, const float *values, int size) {
    static_cast<Model *>(model)->set_vector(layer, static_cast<Vector>(which), values, size);
}

void model_learn(void *model, int begins) { static_cast<Model *>(model)->learn(begins != 0); }

// Of tokens, or of the layers' inputs.
void model_set_embedding(void *model, int of_inputs, const void *data, int is_bf16) {
    Model &of = *static_cast<Model *>(model);
    Embedding &to = of_inputs ? of.input_embedding : of.embedding;
    to.rows = data, to.is_bf16 = is_bf16 != 0;
}

// Writes the embeddings of tokens [count, hidden], without the multiplier.
void model_embed(void *model, const int32_t *tokens, int count, float *rows) {
    const Model &of = *static_cast<Model *>(model);
    for (int i = 0; i < count; i++) of.embed(tokens[i], rows + size_t(i) * of.shape.hidden);
}

const char *model_add_adapter(void *model, const AdapterModule *modules, int count) {
    return unless_full([&] { static_cast<Model *>(model)->add_adapter({modules, modules + count}); });
}

const char *model_forward(void *model, const Batch *batch) {
    Model &of = *static_cast<Model *>(model);
    if (const char *refusal = of.refusal(*batch)) return refusal;
    if (const char *full = unless_full([&] { of.forward(*batch); })) return full;
    return of.meeting && of.meeting->is_lost() ? LOST : nullptr;
}

// Takes recurrent states of the latest batch along accepted nodes.
const char *model_advance(void *model, const Batch *batch, const PathRow *rows, int count) {
    return unless_full([&] { static_cast<Model *>(model)->advance(*batch, rows, count); });
}

// Before any matrix is set; without a meeting the rank is alone with its columns.
void model_split(void *model, const Shard *shard, void *meeting) {
    static_cast<Model *>(model)->split(*shard, static_cast<Meeting *>(meeting));
}

void *meeting_create(void *memory, int64_t bytes, int ranks, int only_gives) {
    return new Meeting(memory, bytes, ranks, only_gives != 0);
}
void meeting_destroy(void *meeting) { delete static_cast<Meeting *>(meeting); }
void meeting_give_up(void *meeting) { static_cast<Meeting *>(meeting)->give_up(); }

const char *meeting_gather(void *meeting, float *data, int rows, int columns, int first, int count) {
    Columns matrix{data, static_cast<size_t>(columns), columns};
    return static_cast<Meeting *>(meeting)->gather(matrix, rows, {first, count}) ? nullptr : LOST;
}

void *draft_head_create(void *pool, int hidden, int inner, const int32_t *vocabulary, int size,
                        const void *embedding, int embedding_is_bf16) {
    std::vector<int32_t> tokens(vocabulary, vocabulary + size);
    return new DraftHead(*static_cast<Pool *>(pool), hidden, inner, tokens, embedding,
                         embedding_is_bf16 != 0);
}
// Has tokens embedded by a model, whose embedding is stored and which outlives the head.
void draft_head_use_model(void *head, const void *model) {
    static_cast<DraftHead *>(head)->use_model(static_cast<const Model *>(model));
}
void draft_head_destroy(void *head) { delete static_cast<DraftHead *>(head); }

void draft_head_set_matrix(void *head, int which, const StoredPart *parts, int count, int k) {
    static_cast<DraftHead *>(head)->set_matrix(which, {parts, parts + count}, k);
}

void draft_head_set_vector(void *head, int which, const float *values) {
    static_cast<DraftHead *>(head)->set_vector(which, values);
}

const char *draft_head_run(void *head, const DraftHeadRow *rows, int row_count, int count) {
    return unless_full([&] { static_cast<DraftHead *>(head)->run(rows, row_count, count); });
}

const char *draft_head_build_trees(void *head, const TreeStart *starts, int row_count,
                                   const TreeShape *shape, int32_t *nodes) {
    return unless_full([&] {
        DraftTreeBuilder(*static_cast<DraftHead *>(head)).build(starts, row_count, *shape, nodes);
    });
}

void sample_many(void *pool, const SamplingRequest *requests, int count, int vocab,
                 int32_t *tokens) {
    Pool &on = *static_cast<Pool *>(pool);
    auto each = [&](int item, int) {
        thread_local Chooser chooser;
        tokens[item] = chooser.choose(requests[item], vocab);
    };
    if (count == 1) return each(0, 0);
    Items<decltype(each)> items(count, each);
    on.run(items);
}

void answer_questions(void *pool, const LogitQuestions *questions) {
    answer(*static_cast<Pool *>(pool), *questions);
}

void report_logprobs(void *pool, const LogprobRequest *requests, int count, int vocab) {
    auto each = [&](int item, int) { report(requests[item], vocab); };
    Items<decltype(each)> items(count, each);
    static_cast<Pool *>(pool)->run(items);
}

void copy_tensor_units(uint8_t *tensor, int layers, int64_t units, int64_t bytes,
                       const int64_t *from, const int64_t *to, int count) {
    copy_units(tensor, layers, units, bytes, from, to, count);
}

void turn_tensor_keys(void *pool, const TurnedKeys *keys, int layers) {
    auto each = [&](int layer, int) { turn_keys(*keys, layer); };
    Items<decltype(each)> items(layers, each);
    static_cast<Pool *>(pool)->run(items);
}

double measure_multiply_adds(void *pool, int format, int loop, long steps) {
    auto of = static_cast<Format>(format);
    return multiply_adds(*static_cast<Pool *>(pool), of, static_cast<Loop>(loop), steps);
}

int64_t measure_stream(void *model) {
    return static_cast<int64_t>(stream(*static_cast<Model *>(model)));
}

void measure_linears(void *model, int rows, int outputs) {
    static_cast<Model *>(model)->linears(rows, outputs);
}

void gumbel_many(uint64_t seed, uint32_t branch, uint32_t position, const uint32_t *tokens,
                 int count, double *noise) {
    Noise source{seed, branch, position};
    for (int i = 0; i < count; i++) noise[i] = source.gumbel(tokens[i]);
}

}  // extern "C"
