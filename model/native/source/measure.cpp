// What the benchmark compares a forward pass with: the machine's peaks, and the products alone.
#include "measure.h"

#include "model.h"

namespace {

constexpr int ACCUMULATORS = 16;

// Independent chains in registers, enough to hide an operation's latency; the assembler keeps the
// compiler from spilling them.
#define CHAIN(operation, target) operation " %%zmm31, %%zmm31, %%zmm" target "\n"
#define CHAINS(operation)                                                                        \
    asm volatile("vpxord %%zmm31, %%zmm31, %%zmm31\n 1:\n"                                       \
                 CHAIN(operation, "0") CHAIN(operation, "1") CHAIN(operation, "2")               \
                 CHAIN(operation, "3") CHAIN(operation, "4") CHAIN(operation, "5")               \
                 CHAIN(operation, "6") CHAIN(operation, "7") CHAIN(operation, "8")               \
                 CHAIN(operation, "9") CHAIN(operation, "10") CHAIN(operation, "11")             \
                 CHAIN(operation, "12") CHAIN(operation, "13") CHAIN(operation, "14")            \
                 CHAIN(operation, "15") "dec %0\n jnz 1b\n"                                      \
                 : "+r"(count)                                                                   \
                 :                                                                               \
                 : "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8",       \
                   "xmm9", "xmm10", "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm31", "cc")

struct Peak : Job {
    Format format;
    int threads;
    long steps;
    int open(int stage) override { return stage == 0 ? threads : -1; }
    void run(int, int, int) override {
        long count = steps;
        switch (format) {
#ifdef __AVX512BF16__
            case Format::bf16: CHAINS("vdpbf16ps"); break;
#endif
#ifdef __AVX512VNNI__
            case Format::int8:
            case Format::int4: CHAINS("vpdpbusd"); break;
#endif
            default: CHAINS("vfmadd231ps");
        }
    }
};

template <class Each>
void each_matrix(const Model &model, Each each) {
    for (const Layer &layer : model.layers) {
        each(layer.qkv, model.workspace.normal);
        each(layer.output, model.workspace.attention);
        each(layer.gate_up, model.workspace.normal);
        each(layer.down, model.workspace.ffn);
    }
    each(model.head, model.workspace.last);
}

struct Streaming : Job {
    std::vector<std::pair<const uint8_t *, size_t>> parts;
    int open(int stage) override { return stage == 0 ? static_cast<int>(parts.size()) : -1; }
    void run(int, int item, int) override {
        auto [from, bytes] = parts[item];
        __m512i sums[4] = {};
        for (size_t i = 0; i + 256 <= bytes; i += 256) {
            for (int j = 0; j < 4; j++) {
                sums[j] = _mm512_xor_si512(sums[j], _mm512_load_si512(from + i + 64 * j));
            }
        }
        for (auto &sum : sums) asm volatile("" : : "v"(sum));
    }
};

}  // namespace

double multiply_adds(Pool &pool, Format format, long steps) {
    Peak peak;
    peak.format = format, peak.threads = pool.size(), peak.steps = steps;
    pool.run(peak);
    int lanes = format == Format::fp32 ? 16 : format == Format::bf16 ? 32 : 64;
#ifndef __AVX512BF16__
    if (format == Format::bf16) lanes = 16;
#endif
#ifndef __AVX512VNNI__
    if (format == Format::int8 || format == Format::int4) lanes = 16;
#endif
    return static_cast<double>(steps) * ACCUMULATORS * lanes * pool.size();
}

size_t stream(Model &model) {
    Streaming streaming;
    size_t total = 0;
    each_matrix(model, [&](const Matrix &matrix, const Operand &) {
        for (int tile = 0; tile < matrix.tiles; tile++) {
            streaming.parts.push_back({matrix.tile(tile), matrix.tile_bytes});
            total += matrix.tile_bytes;
        }
    });
    model.pool.run(streaming);
    return total;
}
