#include "forward/delta.h"

#include "forward/rows.h"
#include "simd/elementary.h"

void load_slab(const DeltaLayout &layout, const float *matrices, const DeltaItem &item,
               float *slab) {
    const size_t first = static_cast<size_t>(item.head) * layout.key_size;
    for (int i = 0; i < layout.key_size; i++) {
        const float *from = matrices + (first + i) * layout.value_size + item.column;
        store(slab + i * LANES, load_first(from, item.columns));
    }
}

void store_slab(const DeltaLayout &layout, const float *slab, const DeltaItem &item,
                float *matrices) {
    const size_t first = static_cast<size_t>(item.head) * layout.key_size;
    for (int i = 0; i < layout.key_size; i++) {
        float *to = matrices + (first + i) * layout.value_size + item.column;
        store_first(to, load(slab + i * LANES), item.columns);
    }
}

// Sums are in four parts, so that additions need not wait for each other.
static Floats sum_of(const Floats (&parts)[4]) {
    return (parts[0] + parts[1]) + (parts[2] + parts[3]);
}

void delta_step(const DeltaLayout &layout, const DeltaItem &item, const DeltaToken &token,
                const float *from, float *to, float *out) {
    const int key_head = item.head / (layout.value_heads / layout.key_heads);
    const float *key = token.key + key_head * layout.key_size;
    const float *query = token.query + key_head * layout.key_size;
    const Floats zero = broadcast(0.0f), decay = broadcast(token.decay[item.head]);
    Floats held[4] = {zero, zero, zero, zero}, read[4] = {zero, zero, zero, zero};
    for (int i = 0; i < layout.key_size; i++) {
        Floats s = load(from + i * LANES) * decay;
        store(to + i * LANES, s);
        held[i % 4] = fma(s, broadcast(key[i]), held[i % 4]);
    }
    const float *value = token.value + item.head * layout.value_size + item.column;
    const Floats change =
        (load_first(value, item.columns) - sum_of(held)) * broadcast(token.beta[item.head]);
    for (int i = 0; i < layout.key_size; i++) {
        Floats s = fma(broadcast(key[i]), change, load(to + i * LANES));
        store(to + i * LANES, s);
        read[i % 4] = fma(s, broadcast(query[i]), read[i % 4]);
    }
    if (out) {
        store_first(out + item.head * layout.value_size + item.column, sum_of(read), item.columns);
    }
}

// Length one, and of queries less.
static void normalise_length(float *head, int size, float factor) {
    Floats squares = broadcast(0.0f);
    for (int i = 0; i < size; i += LANES) {
        Floats x = load_first(head + i, size - i);
        squares = fma(x, x, squares);
    }
    Floats scale = broadcast(1.0f / std::sqrt(reduce_add(squares) + 1e-6f));
    for (int i = 0; i < size; i += LANES) {
        Floats x = load_first(head + i, size - i) * scale / broadcast(factor);
        store_first(head + i, x, size - i);
    }
}

template <bool BF16>
static void convolve_channels(const DeltaLayout &layout, const Layer &layer,
                              const float *const *window, const float *channels, float *mixed) {
    const int size = layout.channels(), before = layout.taps - 1;
    for (int i = 0; i < size; i += LANES) {
        const int left = size - i;
        Floats sum = broadcast(0.0f);
        for (int tap = 0; tap <= before; tap++) {
            const float *from = tap < before ? window[tap] : channels;
            const float *weights = layer.taps.data() + static_cast<size_t>(tap) * size;
            if (from) sum = fma(load_first(from + i, left), load_first(weights + i, left), sum);
        }
        sum = rounded<BF16>(sum);
        Floats e = exponential(broadcast(0.0f) - sum);
        store_first(mixed + i, rounded<BF16>(sum / (e + broadcast(1.0f))), left);
    }
}

void mix_inputs(const DeltaLayout &layout, const Layer &layer, bool in_bf16,
                const float *const *window, const float *channels, const float *steps,
                float *mixed) {
    (in_bf16 ? convolve_channels<true> : convolve_channels<false>)(layout, layer, window, channels,
                                                                   mixed);
    const float root = std::sqrt(static_cast<float>(layout.key_size));
    for (int head = 0; head < 2 * layout.key_heads; head++) {
        normalise_length(mixed + head * layout.key_size, layout.key_size,
                         head < layout.key_heads ? root : 1.0f);
    }
    float *beta = mixed + layout.channels(), *decay = beta + layout.value_heads;
    for (int head = 0; head < layout.value_heads; head++) {
        float share = static_cast<float>(1.0 / (1.0 + elementary::exp(-double{steps[head]})));
        beta[head] = in_bf16 ? widen(to_bf16(share)) : share;
        const float x = steps[layout.value_heads + head] + layer.step_bias[head];
        const double step = x > 20.0f ? double{x} : elementary::log(1.0 + elementary::exp(x));
        decay[head] = static_cast<float>(elementary::exp(layer.decay[head] * step));
    }
}
