// Replays calls of the kernels' C interface from a file, and writes what they compute to another:
// the kernels of a processor that is emulated, without Python. `script.py` writes such files.
//
//     call     its name's first letter, then its arguments in their order; an array is its count of
//              bytes, then these
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <type_traits>
#include <vector>

#include "draft_head/draft_tree.h"
#include "forward/model.h"
#include "sampling/logprobs.h"
#include "sampling/sampler.h"

extern "C" {
void *pool_create(int threads);
void *model_create(void *pool, const Shape *shape, const LayerShape *layers,
                   const float *inverse_frequencies);
void model_destroy(void *model);
void model_set_matrix(void *model, int layer, int part, int expert, const void *data, int is_bf16,
                      int n, int k, const float *bias);
void model_set_vector(void *model, int layer, int which, const float *values, int size);
void model_set_embedding(void *model, int of_inputs, const void *data, int is_bf16);
const char *model_forward(void *model, const Batch *batch);
void model_set_stored(void *model, int layer, int part, int expert, const StoredPart *parts,
                      int count, int k, const float *bias);
void quantise_rows(void *pool, int kind, const void *data, int is_bf16, int rows, int k,
                   uint8_t *blocks);
int64_t stored_file_bytes(int kind, int k);
void *stored_create(void *pool, const StoredPart *parts, int count, int k);
void stored_destroy(void *matrix);
void stored_multiply(void *matrix, const float *inputs, int rows, float *products);
void stored_unpack(void *matrix, int first, int count, float *values);
void *draft_head_create(void *pool, int hidden, int inner, const int32_t *vocabulary, int size,
                        const void *embedding, int embedding_is_bf16);
void draft_head_set_matrix(void *head, int which, const StoredPart *parts, int count, int k);
void draft_head_set_vector(void *head, int which, const float *values);
const char *draft_head_build_trees(void *head, const TreeStart *starts, int row_count,
                                   const TreeShape *shape, int32_t *nodes);
void sample_many(void *pool, const SamplingRequest *requests, int count, int vocab,
                 int32_t *tokens);
void report_logprobs(void *pool, const LogprobRequest *requests, int count, int vocab);
}

namespace {

FILE *script, *results;

[[noreturn]] void fail(const char *why) {
    fprintf(stderr, "%s\n", why);
    exit(1);
}

template <class T>
T read() {
    T value;
    if (fread(&value, sizeof value, 1, script) != 1) fail("the script ends too early");
    return value;
}

template <class T>
std::vector<T> read_many() {
    std::vector<T> values(static_cast<size_t>(read<int64_t>()) / sizeof(T));
    if (fread(values.data(), sizeof(T), values.size(), script) != values.size()) {
        fail("the script ends too early");
    }
    return values;
}

template <class T>
void write_many(const std::vector<T> &values) {
    if (fwrite(values.data(), sizeof(T), values.size(), results) != values.size()) {
        fail("the results cannot be written");
    }
}

void check(const char *refusal) {
    if (refusal) fail(refusal);
}

// Parts of a matrix, with their blocks.
struct Parts {
    std::vector<std::vector<uint8_t>> blocks;
    std::vector<StoredPart> parts;
    int k = 0;

    explicit Parts(int count) : blocks(count) {
        for (auto &each : blocks) {
            int kind = read<int32_t>(), n = read<int32_t>();
            k = read<int32_t>();
            each = read_many<uint8_t>();
            parts.push_back({each.data(), nullptr, static_cast<int64_t>(each.size()) / n, kind, n});
        }
    }
    int count() const { return static_cast<int>(parts.size()); }
};

// A model, its pages, and what they hold.
struct Replay {
    void *pool = pool_create(2);
    void *model = nullptr;
    Shape shape{};
    std::vector<uint8_t> embeddings[2], keys, values;
    std::vector<float> state_slots;

    void create_model() {
        if (model) model_destroy(model);
        shape = read_many<Shape>().at(0);
        auto layers = read_many<LayerShape>();
        model = model_create(pool, &shape, layers.data(), read_many<float>().data());
    }
    void set_matrix() {
        int layer = read<int32_t>(), part = read<int32_t>(), expert = read<int32_t>();
        int is_bf16 = read<int32_t>(), n = read<int32_t>(), k = read<int32_t>();
        auto data = read_many<uint8_t>();
        auto bias = read_many<float>();
        model_set_matrix(model, layer, part, expert, data.data(), is_bf16, n, k,
                         bias.empty() ? nullptr : bias.data());
    }
    void set_blocks() {
        int layer = read<int32_t>(), part = read<int32_t>(), expert = read<int32_t>();
        Parts of(read<int32_t>());
        auto bias = read_many<float>();
        model_set_stored(model, layer, part, expert, of.parts.data(), of.count(), of.k,
                         bias.empty() ? nullptr : bias.data());
    }
    void quantise() {
        int kind = read<int32_t>(), n = read<int32_t>(), k = read<int32_t>();
        auto weights = read_many<float>();
        std::vector<uint8_t> blocks(n * stored_file_bytes(kind, round_up(k, BLOCK)));
        quantise_rows(pool, kind, weights.data(), 0, n, k, blocks.data());
        write_many(blocks);
    }
    void set_vector() {
        int layer = read<int32_t>(), which = read<int32_t>();
        auto vector = read_many<float>();
        model_set_vector(model, layer, which, vector.data(), static_cast<int>(vector.size()));
    }
    void set_embedding() {
        int of_inputs = read<int32_t>(), is_bf16 = read<int32_t>();
        embeddings[of_inputs] = read_many<uint8_t>();
        model_set_embedding(model, of_inputs, embeddings[of_inputs].data(), is_bf16);
    }
    void set_pages() {
        keys = read_many<uint8_t>(), values = read_many<uint8_t>();
        state_slots = read_many<float>();
    }

    void forward() {
        Batch batch = read_many<Batch>().at(0);
        std::deque<std::vector<uint8_t>> arrays;
        auto take = [&](auto *&pointer) {
            arrays.push_back(read_many<uint8_t>());
            void *data = arrays.back().empty() ? nullptr : arrays.back().data();
            pointer = static_cast<std::remove_reference_t<decltype(pointer)>>(data);
        };
        take(batch.tokens), take(batch.positions), take(batch.slots);
        take(batch.row_starts), take(batch.kv_lengths), take(batch.block_tables);
        take(batch.ancestors), take(batch.outputs), take(batch.seen);
        take(batch.state_parents), take(batch.state_rows), take(batch.state_saves);
        std::vector<float> logits(static_cast<size_t>(batch.logit_count) * shape.vocab);
        std::vector<float> states(static_cast<size_t>(batch.output_count) * shape.hidden);
        batch.keys = keys.data(), batch.values = values.data();
        batch.state_slots = state_slots.empty() ? nullptr : state_slots.data();
        batch.logits = logits.data(), batch.states = states.data();
        check(model_forward(model, &batch));
        write_many(logits);
        write_many(states);
    }

    void sample() {
        auto logits = read_many<float>();
        SamplingRequest request{};
        request.logits = logits.data();
        request.temperature = read<double>(), request.top_p = read<double>();
        request.min_p = read<double>(), request.top_k = read<int32_t>();
        request.seed = read<uint64_t>(), request.position = read<uint32_t>();
        std::vector<int32_t> token(1), top(10);
        int vocab = static_cast<int>(logits.size());
        sample_many(pool, &request, 1, vocab, token.data());
        std::vector<double> logprob(1), top_logprobs(10);
        LogprobRequest asked{logits.data(), token[0], 10, logprob.data(), top.data(),
                             top_logprobs.data()};
        report_logprobs(pool, &asked, 1, vocab);
        write_many(token);
        write_many(logprob);
        write_many(top);
        write_many(top_logprobs);
    }

    void multiply_stored() {
        Parts of(read<int32_t>());
        const int n = of.parts[0].count, k = of.k;
        auto inputs = read_many<float>();
        void *matrix = stored_create(pool, of.parts.data(), 1, k);
        int rows = static_cast<int>(inputs.size()) / k;
        std::vector<float> products(static_cast<size_t>(rows) * n);
        std::vector<float> values(static_cast<size_t>(n) * k);
        stored_multiply(matrix, inputs.data(), rows, products.data());
        stored_unpack(matrix, 0, n, values.data());
        stored_destroy(matrix);
        write_many(products);
        write_many(values);
    }

    void draft() {
        int hidden = read<int32_t>(), inner = read<int32_t>();
        auto vocabulary = read_many<int32_t>();
        auto tokens = read_many<float>();
        void *head = draft_head_create(pool, hidden, inner, vocabulary.data(),
                                       static_cast<int>(vocabulary.size()), tokens.data(), 0);
        for (int which = 0; which < 3; which++) {
            Parts of(read<int32_t>());
            draft_head_set_matrix(head, which, of.parts.data(), of.count(), of.k);
        }
        for (int which = 0; which < 4; which++) {
            draft_head_set_vector(head, which, read_many<float>().data());
        }
        auto shape = read_many<TreeShape>();
        auto starts = read_many<TreeStart>();
        auto states = read_many<float>();
        for (size_t row = 0; row < starts.size(); row++) starts[row].state = &states[row * hidden];
        std::vector<int32_t> nodes(starts.size() * shape[0].slots() * shape[0].fields());
        check(draft_head_build_trees(head, starts.data(), static_cast<int>(starts.size()),
                                     shape.data(), nodes.data()));
        write_many(nodes);
    }
};

}  // namespace

int main(int count, char **arguments) {
    if (count != 3) fail("usage: driver SCRIPT RESULTS");
    script = fopen(arguments[1], "rb"), results = fopen(arguments[2], "wb");
    if (!script || !results) fail("a file cannot be opened");
    Replay replay;
    for (int call; (call = fgetc(script)) != EOF;) {
        switch (call) {
            case 'm': replay.create_model(); break;
            case 'w': replay.set_matrix(); break;
            case 'b': replay.set_blocks(); break;
            case 'r': replay.quantise(); break;
            case 'v': replay.set_vector(); break;
            case 'e': replay.set_embedding(); break;
            case 'p': replay.set_pages(); break;
            case 'f': replay.forward(); break;
            case 's': replay.sample(); break;
            case 'd': replay.draft(); break;
            case 'q': replay.multiply_stored(); break;
            default: fail("a call is unknown");
        }
    }
    fclose(results);
    return 0;
}
