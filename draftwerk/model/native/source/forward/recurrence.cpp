#include "forward/recurrence.h"

#include "forward/rows.h"
#include "simd/elementary.h"

void load_slab(const RecurrentLayout &layout, const float *matrices, const RecurrentItem &item,
               float *slab) {
    const size_t first = static_cast<size_t>(item.head) * layout.key_size;
    for (int i = 0; i < layout.key_size; i++) {
        const float *from = matrices + (first + i) * layout.value_size + item.column;
        store(slab + i * LANES, load_first(from, item.columns));
    }
}

void store_slab(const RecurrentLayout &layout, const float *slab, const RecurrentItem &item,
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

static Floats delta_rule(const RecurrentLayout &layout, const RecurrentItem &item,
                         const RecurrentToken &token, const float *from, float *to) {
    const int key_head = layout.key_head(item.head);
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
    return sum_of(read);
}

static Floats mamba_rule(const RecurrentLayout &layout, const RecurrentItem &item,
                         const RecurrentToken &token, const float *from, float *to) {
    const int key_head = layout.key_head(item.head);
    const float *key = token.key + key_head * layout.key_size;
    const float *query = token.query + key_head * layout.key_size;
    const float *value = token.value + item.head * layout.value_size + item.column;
    const Floats zero = broadcast(0.0f), decay = broadcast(token.decay[item.head]);
    const Floats change = load_first(value, item.columns) * broadcast(token.beta[item.head]);
    Floats read[4] = {zero, zero, zero, zero};
    for (int i = 0; i < layout.key_size; i++) {
        Floats s = fma(broadcast(key[i]), change, load(from + i * LANES) * decay);
        store(to + i * LANES, s);
        read[i % 4] = fma(s, broadcast(query[i]), read[i % 4]);
    }
    return sum_of(read);
}

void recurrent_step(const RecurrentLayout &layout, const RecurrentItem &item,
                    const RecurrentToken &token, const float *from, float *to, float *out) {
    const Floats read = (layout.is_mamba ? mamba_rule : delta_rule)(layout, item, token, from, to);
    if (out) store_first(out + item.head * layout.value_size + item.column, read, item.columns);
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
static void convolve_channels(const RecurrentLayout &layout, const Layer &layer,
                              const float *const *window, const float *channels, float *mixed) {
    const int size = layout.channels(), before = layout.taps - 1;
    const float *bias = layer.taps.data() + static_cast<size_t>(layout.taps) * size;
    const bool has_bias = layer.taps.size() > static_cast<size_t>(layout.taps) * size;
    for (int i = 0; i < size; i += LANES) {
        const int left = size - i;
        Floats sum = broadcast(0.0f);
        for (int tap = 0; tap <= before; tap++) {
            const float *from = tap < before ? window[tap] : channels;
            const float *weights = layer.taps.data() + static_cast<size_t>(tap) * size;
            if (from) sum = fma(load_first(from + i, left), load_first(weights + i, left), sum);
        }
        if (has_bias) sum = sum + load_first(bias + i, left);
        store_first(mixed + i, rounded<BF16>(silu(rounded<BF16>(sum))), left);
    }
}

static double softplus(float x) {
    return x > 20.0f ? double{x} : elementary::log(1.0 + elementary::exp(x));
}

static void delta_rates(const RecurrentLayout &layout, const Layer &layer, bool in_bf16,
                        const float *steps, float *beta, float *decay) {
    for (int head = 0; head < layout.value_heads; head++) {
        float share = static_cast<float>(1.0 / (1.0 + elementary::exp(-double{steps[head]})));
        beta[head] = in_bf16 ? widen(to_bf16(share)) : share;
        const double step = softplus(steps[layout.value_heads + head] + layer.step_bias[head]);
        decay[head] = static_cast<float>(elementary::exp(layer.decay[head] * step));
    }
}

static void mamba_rates(const RecurrentLayout &layout, const Layer &layer, bool in_bf16,
                        const float *steps, float *beta, float *decay) {
    auto round = [&](float x) { return in_bf16 ? widen(to_bf16(x)) : x; };
    for (int head = 0; head < layout.value_heads; head++) {
        const float x = round(steps[head] + round(layer.step_bias[head]));
        beta[head] = round(static_cast<float>(softplus(x)));
        decay[head] = static_cast<float>(elementary::exp(double{layer.decay[head]} * beta[head]));
    }
}

void mix_inputs(const RecurrentLayout &layout, const Layer &layer, bool in_bf16,
                const float *const *window, const float *channels, const float *steps,
                float *mixed) {
    (in_bf16 ? convolve_channels<true> : convolve_channels<false>)(layout, layer, window, channels,
                                                                   mixed);
    float *beta = mixed + layout.channels(), *decay = beta + layout.value_heads;
    if (layout.is_mamba) return mamba_rates(layout, layer, in_bf16, steps, beta, decay);
    const float root = std::sqrt(static_cast<float>(layout.key_size));
    for (int head = 0; head < 2 * layout.key_heads; head++) {
        normalise_length(mixed + head * layout.key_size, layout.key_size,
                         head < layout.key_heads ? root : 1.0f);
    }
    delta_rates(layout, layer, in_bf16, steps, beta, decay);
}
