// The small operators between matrix products, one token's row at a time. A value is rounded to
// bf16 wherever Hugging Face's Llama, held in bf16, rounds it (BF16); otherwise never.
#pragma once

#include <cmath>

#include "forward/model.h"
#include "matrix/matrix.h"
#include "simd/simd.h"

// out = in / rms(in) * weight, statistics in float; ONCE: only the result is rounded.
template <bool BF16, bool ONCE = false>
void rms_norm(const float *in, const float *weight, int size, float epsilon, float *out) {
    Floats squares = broadcast(0.0f);
    for (int i = 0; i < size; i += LANES) {
        Floats x = load_first(in + i, size - i);
        squares = fma(x, x, squares);
    }
    float mean = reduce_add(squares) / static_cast<float>(size);
    Floats factor = broadcast(1.0f / std::sqrt(mean + epsilon));
    for (int i = 0; i < size; i += LANES) {
        Floats x = rounded<BF16 && !ONCE>(load_first(in + i, size - i) * factor);
        Floats y = rounded<BF16>(x * load_first(weight + i, size - i));
        store_first(out + i, without_tiny(y), size - i);
    }
}

// out = (in - mean) / deviation * weight + bias, rounded once; the bias may be null.
template <bool BF16>
void layer_norm(const float *in, const float *weight, const float *bias, int size, float epsilon,
                float *out) {
    Floats sum = broadcast(0.0f), squares = broadcast(0.0f);
    for (int i = 0; i < size; i += LANES) sum = sum + load_first(in + i, size - i);
    Floats mean = broadcast(reduce_add(sum) / static_cast<float>(size));
    for (int i = 0; i < size; i += LANES) {
        Floats x = keep_first(load_first(in + i, size - i) - mean, size - i, broadcast(0.0f));
        squares = fma(x, x, squares);
    }
    float variance = reduce_add(squares) / static_cast<float>(size);
    Floats factor = broadcast(1.0f / std::sqrt(variance + epsilon));
    for (int i = 0; i < size; i += LANES) {
        Floats y = (load_first(in + i, size - i) - mean) * factor * load_first(weight + i, size - i);
        if (bias) y = y + load_first(bias + i, size - i);
        store_first(out + i, without_tiny(rounded<BF16>(y)), size - i);
    }
}

// x *= factor.
template <bool BF16>
void scale(float *x, float factor, int size) {
    for (int i = 0; i < size; i += LANES) {
        Floats y = rounded<BF16>(load_first(x + i, size - i) * broadcast(factor));
        store_first(x + i, y, size - i);
    }
}

// x = c tanh(x / c).
inline void cap(float *x, float c, int size) {
    for (int i = 0; i < size; i += LANES) {
        Floats y = tanh(load_first(x + i, size - i) / broadcast(c)) * broadcast(c);
        store_first(x + i, y, size - i);
    }
}

// Rotates the pairs (i, i + half) of one head in place.
template <bool BF16>
void rotate(float *head, const float *cosine, const float *sine, int half) {
    for (int i = 0; i < half; i += LANES) {
        Floats c = load_first(cosine + i, half - i), s = load_first(sine + i, half - i);
        Floats x = load_first(head + i, half - i), y = load_first(head + half + i, half - i);
        Floats first = rounded<BF16>(x * c) - rounded<BF16>(y * s);
        Floats second = rounded<BF16>(y * c) + rounded<BF16>(x * s);
        store_first(head + i, rounded<BF16>(first), half - i);
        store_first(head + half + i, rounded<BF16>(second), half - i);
    }
}

inline Floats silu(const Floats &x) {
    return x / (exponential(broadcast(0.0f) - x) + broadcast(1.0f));
}

struct Clamps {
    float limit, slope;
};

// out = gate sigmoid(slope gate) (up + 1), gates at most the limit, ups within it.
template <bool BF16>
void clamped_and_mul(const float *gate, const float *up, int size, const Clamps &by, float *out) {
    const Floats limit = broadcast(by.limit), least = broadcast(-by.limit);
    for (int i = 0; i < size; i += LANES) {
        Floats g = min(rounded<BF16>(load(gate + i)), limit);
        Floats u = max(min(rounded<BF16>(load(up + i)), limit), least);
        Floats e = exponential(broadcast(0.0f) - rounded<BF16>(g * broadcast(by.slope)));
        Floats share = rounded<BF16>(broadcast(1.0f) / (e + broadcast(1.0f)));
        Floats more = rounded<BF16>(u + broadcast(1.0f));
        store(out + i, rounded<BF16>(more * rounded<BF16>(g * share)));
    }
}

// By the formula with tanh: x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
inline Floats gelu(const Floats &x) {
    Floats cubic = fma(x * x * x, broadcast(0.044715f), x);
    return x / (exponential(cubic * broadcast(-1.5957691216f)) + broadcast(1.0f));
}

inline Floats relu_squared(const Floats &x) {
    Floats positive = max(x, broadcast(0.0f));
    return positive * positive;
}

// out = activation(gate) * up.
template <bool BF16, Floats (*ACTIVATION)(const Floats &)>
void activated_and_mul(const float *gate, const float *up, int size, float *out) {
    for (int i = 0; i < size; i += LANES) {
        Floats g = rounded<BF16>(load(gate + i)), u = rounded<BF16>(load(up + i));
        store(out + i, rounded<BF16>(rounded<BF16>(ACTIVATION(g)) * u));
    }
}

template <bool BF16>
void gated(Activation activation, const float *gate, const float *up, int size, float *out) {
    switch (activation) {
        case Activation::gelu_tanh: return activated_and_mul<BF16, gelu>(gate, up, size, out);
        case Activation::relu_squared:
            return activated_and_mul<BF16, relu_squared>(gate, up, size, out);
        default: return activated_and_mul<BF16, silu>(gate, up, size, out);
    }
}

// x = activation(x), of an FFN without gates.
template <bool BF16>
void activate(Activation activation, float *x, int size) {
    for (int i = 0; i < size; i += LANES) {
        Floats value = rounded<BF16>(load(x + i));
        if (activation == Activation::relu_squared) {
            value = relu_squared(value);
        } else if (activation == Activation::gelu_tanh) {
            value = gelu(value);
        } else {
            value = silu(value);
        }
        store(x + i, rounded<BF16>(value));
    }
}

// x += product.
template <bool BF16>
void add_to(const float *product, int size, float *x) {
    for (int i = 0; i + LANES <= size; i += LANES) {
        Floats p = rounded<BF16>(load(product + i));
        store(x + i, rounded<BF16>(load(x + i) + p));
    }
    if (int left = size % LANES; left > 0) {
        const int i = size - left;
        Floats p = rounded<BF16>(load_first(product + i, left));
        store_first(x + i, rounded<BF16>(load_first(x + i, left) + p), left);
    }
}
