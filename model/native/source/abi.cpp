// The C interface that library.py loads. Handles are plain pointers; failures come back as text.
#include <exception>

#include "model.h"

extern "C" {

void *pool_create(int threads) { return new Pool(threads); }
void pool_destroy(void *pool) { delete static_cast<Pool *>(pool); }

void *model_create(void *pool, const Shape *shape, const float *inverse_frequencies) {
    return new Model(*static_cast<Pool *>(pool), *shape, inverse_frequencies);
}
void model_destroy(void *model) { delete static_cast<Model *>(model); }

void model_set_matrix(void *model, int layer, int part, const void *data, int is_bf16, int n, int k,
                      const float *bias) {
    Source source{data, is_bf16 != 0, n, k, bias};
    static_cast<Model *>(model)->set_matrix(layer, static_cast<Part>(part), source);
}

void model_set_vector(void *model, int layer, int which, const float *values, int size) {
    static_cast<Model *>(model)->set_vector(layer, static_cast<Vector>(which), values, size);
}

void model_set_embedding(void *model, const void *data, int is_bf16) {
    static_cast<Model *>(model)->embedding = data;
    static_cast<Model *>(model)->embedding_is_bf16 = is_bf16 != 0;
}

const char *model_forward(void *model, const Batch *batch) {
    Model &of = *static_cast<Model *>(model);
    if (const char *refusal = of.refusal(*batch)) return refusal;
    try {
        of.forward(*batch);
    } catch (const std::bad_alloc &) {
        return "out of memory";
    }
    return nullptr;
}

}  // extern "C"
