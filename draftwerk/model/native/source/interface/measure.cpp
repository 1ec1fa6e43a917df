// What the benchmark compares a forward pass with: the machine's peaks, and the products alone.
#include "interface/measure.h"

#include "forward/model.h"

namespace {

using native::PEAK_CHAINS;

// Multiply-adds in independent chains in registers, enough to hide an operation's latency.
template <class Sum, class Step>
void run_chains(long steps, Sum zero, Step step) {
    Sum sums[PEAK_CHAINS];
    for (Sum &sum : sums) sum = zero;
    for (long i = 0; i < steps; i++) {
#pragma GCC unroll 16
        for (Sum &sum : sums) step(sum);
    }
    for (Sum &sum : sums) asm volatile("" : : DRAFTWERK_REGISTER(sum));
}

template <class Register>
Register opaque(Register value) {
    asm volatile("" : "+" DRAFTWERK_REGISTER(value));
    return value;
}

// Four bytes at a time, of a register or of memory: processors differ in which they do more of.
template <class Quad>
void run_quads(long steps, Quad quad) {
    const native::QuadWeights<true> weights(opaque(native::broadcast(0)));
    run_chains(steps, native::broadcast(0), [&](native::Ints &sum) {
        native::QuadSum<true> quads{sum};
        quads.add(weights, quad);
        sum = quads.sum;
    });
}

struct Peak : Job {
    Format format;
    int threads;
    long steps;
    Loop loop;
    int open(int stage) override { return stage == 0 ? threads : -1; }
    void run(int, int, int) override {
        if (loop == Loop::tiles) return amx::multiply_again(steps);
        if (format == Format::stored) {
            const int8_t quad[4] = {};
            if (loop == Loop::registers) return run_quads(steps, opaque(native::broadcast(0)));
            return run_quads<const int8_t *>(steps, quad);
        }
        if (format == Format::bf16) {
            const uint8_t zeros[64] = {};
            const PairElement pair[2] = {};
            auto weights = opaque(native::load_pairs(zeros, 0));
            auto operand = opaque(native::broadcast_pair(pair, 0));
            return run_chains(steps, native::broadcast(0.0f), [&](native::Floats &sum) {
                sum = native::fma(operand, weights, sum);
            });
        }
        const native::Floats x = opaque(native::broadcast(0.0f));
        run_chains(steps, x, [&](native::Floats &sum) { sum = native::fma(x, x, sum); });
    }
};

template <class Each>
void each_matrix(const Model &model, Each each) {
    for (const Layer &layer : model.layers) {
        each(layer.qkv, model.workspace.normal);
        each(layer.output, layer.attends() ? model.workspace.attention : model.workspace.mixed);
        if (model.dense_ffn(layer)) {
            each(layer.gate_up, model.workspace.normal);
            each(layer.down, model.workspace.ffn);
        }
        if (!layer.shape.has_experts) continue;
        each(layer.router, model.workspace.routed);
        for (int expert = 0; expert < model.shape.experts_used; expert++) {  // as for one token
            each(layer.expert_gate_up[expert], model.workspace.normal);
            each(layer.expert_down[expert], model.workspace.expert_ffn);
        }
    }
    each(model.head, model.workspace.last);
}

struct Streaming : Job {
    std::vector<std::pair<const uint8_t *, size_t>> parts;
    int open(int stage) override { return stage == 0 ? static_cast<int>(parts.size()) : -1; }
    void run(int, int item, int) override {
        auto [from, bytes] = parts[item];
        constexpr size_t BYTES = sizeof(native::Ints);
        native::Ints sums[4] = {};
        for (size_t i = 0; i + 4 * BYTES <= bytes; i += 4 * BYTES) {
            for (size_t j = 0; j < 4; j++) {
                sums[j] = native::bit_xor(sums[j], native::load_ints(from + i + j * BYTES));
            }
        }
        for (auto &sum : sums) asm volatile("" : : DRAFTWERK_REGISTER(sum));
    }
};

}  // namespace

double multiply_adds(Pool &pool, Format format, Loop loop, long steps) {
    Peak peak;
    peak.format = format, peak.threads = pool.size(), peak.steps = steps;
    peak.loop = loop;
    long each = native::LANES * PEAK_CHAINS;
    if (format == Format::bf16) each *= 2 / native::HALVES;
    if (format == Format::stored) each *= 4;
    if (loop == Loop::tiles) each = format == Format::stored ? amx::round_size() : 0;
    if (each > 0) pool.run(peak);
    return static_cast<double>(steps) * each * pool.size();
}

size_t stream(Model &model) {
    Streaming streaming;
    size_t total = 0;
    each_matrix(model, [&](const Matrix &matrix, const Operand &) {
        for (int tile = 0; tile < matrix.tiles; tile++) {
            streaming.parts.push_back({matrix.tile(tile), matrix.bytes_of(tile)});
            total += matrix.bytes_of(tile);
        }
    });
    model.pool.run(streaming);
    return total;
}
