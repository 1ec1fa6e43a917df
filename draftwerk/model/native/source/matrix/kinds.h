// Where a GGUF block's bytes are in its file, and where in a panel of sixteen rows.
//
// A panel is sixteen rows transposed by words of four bytes, one unit of inputs after the other:
// lane c of a line of 64 bytes is a word of row c, and the lines are in the order in which a kernel
// reads them. Where blocks are an odd number of halves, a half of each goes into a line that two
// units share, in front of both. So a panel takes what the file takes, and nothing is computed.
//
//            lines     content ("low" and "high" are nibbles; word t has inputs 4 t .. 4 t + 3)
//     Q4_0   ½ + 4     d; word t low: inputs 4 t .., high: 16 + 4 t ..; so are IQ4_NL and MXFP4
//     Q4_1   1 + 4     d, m
//     Q5_0   ½ + 1 + 4 d; fifth bits: bit t of byte b is that of input 4 t + b
//     Q5_1   1 + 1 + 4 d, m; fifth bits
//     Q8_0   ½ + 8     d
//     Q2_K   1 + 4 + 16        d, dmin; scale low, minimum high; two bits of each quarter of a half
//     Q3_K   ½ + 3 + 8 + 16    d; scales; bit j of word t is the third of input 32 j + 4 t ..
//     Q4_K   1 + 3 + 32        d, dmin; scales; word 8 i + t low: inputs 64 i .., high: 32 later
//     Q5_K   1 + 3 + 8 + 32    d, dmin; scales; fifth bits as Q3_K's third
//     Q6_K   ½ + 4 + 2 x 8 x 3 d; scales; of each half the low bits of quarters 0 and 2, those of 1
//                              and 3, and the high bits of all
//     IQ4_XS 1 + 1 + 32        d and two bits of each scale; four bits of each; blocks as IQ4_NL
//     MXFP4  1 + 4 x 4         exponents of four blocks
//     F32    32                BF16, F16: 16, of two inputs a word; numbers that are not quantised
//
// And of other files, whose groups of 32 or 128 inputs have a scale that is a float:
//
//     G4     1 + 4 x 1 or 4    the scale's upper 24 bits, and the zero; nibbles as in Q4_0
//     G8     1 + 32            scale; signed bytes
//     F8     1 + 32            scale; floats of four bits of exponent and three of mantissa (e4m3)
#pragma once

#include <cstddef>
#include <cstdint>

// As GGUF numbers them; those that it does not have from 1000 on.
enum class Kind : int32_t {
    f32 = 0, f16 = 1, bf16 = 30, g4_32 = 1000, g4_128 = 1001, g8_128 = 1002, f8_128 = 1003,
    q4_0 = 2, q4_1 = 3, q5_0 = 6, q5_1 = 7, q8_0 = 8, q2_k = 10, q3_k = 11, q4_k = 12, q5_k = 13,
    q6_k = 14, iq4_nl = 20, iq4_xs = 23, mxfp4 = 39
};

// A unit: of FILE_BYTES in the file, INPUTS of them, LINES of a panel. `byte_of(line, i)` is where
// in the file's block byte i of that line's word is; HALF is the place of the half that lies in a
// line of its own, FIFTH the line whose bits are moved, -1 without.
template <Kind KIND, int BYTES, int INPUTS_, int LINES_, int HALF_ = -1, int FIFTH_ = -1>
struct Unit {
    static constexpr Kind kind = KIND;
    static constexpr int FILE_BYTES = BYTES, INPUTS = INPUTS_, LINES = LINES_;
    static constexpr int HALF = HALF_, FIFTH = FIFTH_;
    static constexpr bool PAIRED = HALF >= 0;
};

template <Kind KIND>
struct Layout;

// Words in the order of the file.
template <Kind KIND, int BYTES, int INPUTS, int FIFTH = -1>
struct AsInFile : Unit<KIND, BYTES, INPUTS, BYTES / 4, -1, FIFTH> {
    static constexpr int byte_of(int line, int i) { return 4 * line + i; }
};
// The same behind a half.
template <Kind KIND, int BYTES, int FIFTH = -1>
struct BehindHalf : Unit<KIND, BYTES, 32, BYTES / 4, 0, FIFTH> {
    static constexpr int byte_of(int line, int i) { return 2 + 4 * line + i; }
};

template <>
struct Layout<Kind::q4_0> : BehindHalf<Kind::q4_0, 18> {};
template <>
struct Layout<Kind::iq4_nl> : BehindHalf<Kind::iq4_nl, 18> {};
template <>
struct Layout<Kind::q4_1> : AsInFile<Kind::q4_1, 20, 32> {};
template <>
struct Layout<Kind::q5_0> : BehindHalf<Kind::q5_0, 22, 0> {};
template <>
struct Layout<Kind::q5_1> : AsInFile<Kind::q5_1, 24, 32, 1> {};
template <>
struct Layout<Kind::q8_0> : BehindHalf<Kind::q8_0, 34> {};
template <>
struct Layout<Kind::q2_k> : Unit<Kind::q2_k, 84, 256, 21> {
    static constexpr int byte_of(int line, int i) { return (line ? 4 * line - 4 : 80) + i; }
};
template <>
struct Layout<Kind::q3_k> : Unit<Kind::q3_k, 110, 256, 27, 108> {
    static constexpr int byte_of(int line, int i) {
        return (line < 3 ? 96 + 4 * line : 4 * (line - 3)) + i;
    }
};
template <>
struct Layout<Kind::q4_k> : AsInFile<Kind::q4_k, 144, 256> {};
template <>
struct Layout<Kind::q5_k> : AsInFile<Kind::q5_k, 176, 256> {};
template <>
struct Layout<Kind::q6_k> : Unit<Kind::q6_k, 210, 256, 52, 208> {
    static constexpr int byte_of(int line, int i) {
        int at = line - 4, half = at / 24, word = at % 24 / 3;
        if (line < 4) return 192 + 4 * line + i;
        if (at % 3 == 2) return 128 + 32 * half + 4 * word + i;
        return 64 * half + 32 * (at % 3) + 4 * word + i;
    }
};
template <>
struct Layout<Kind::iq4_xs> : AsInFile<Kind::iq4_xs, 136, 256> {};
template <>
struct Layout<Kind::mxfp4> : Unit<Kind::mxfp4, 68, 128, 17> {
    static constexpr int byte_of(int line, int i) {
        return line ? (line - 1) / 4 * 17 + 1 + (line - 1) % 4 * 4 + i : 17 * i;
    }
};

template <>
struct Layout<Kind::f32> : AsInFile<Kind::f32, 128, 32> {};
template <>
struct Layout<Kind::f16> : AsInFile<Kind::f16, 64, 32> {};
template <>
struct Layout<Kind::bf16> : AsInFile<Kind::bf16, 64, 32> {};
template <>
struct Layout<Kind::g4_32> : AsInFile<Kind::g4_32, 20, 32> {};
template <>
struct Layout<Kind::g4_128> : AsInFile<Kind::g4_128, 68, 128> {};
template <>
struct Layout<Kind::g8_128> : AsInFile<Kind::g8_128, 132, 128> {};
template <>
struct Layout<Kind::f8_128> : AsInFile<Kind::f8_128, 132, 128> {};

constexpr int8_t IQ4_VALUES[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};
constexpr int8_t MXFP4_VALUES[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Calls `each` with the layout of a kind.
template <class Each>
auto with_layout(Kind kind, Each each) {
    switch (kind) {
        case Kind::q4_0: return each(Layout<Kind::q4_0>());
        case Kind::q4_1: return each(Layout<Kind::q4_1>());
        case Kind::q5_0: return each(Layout<Kind::q5_0>());
        case Kind::q5_1: return each(Layout<Kind::q5_1>());
        case Kind::q8_0: return each(Layout<Kind::q8_0>());
        case Kind::q2_k: return each(Layout<Kind::q2_k>());
        case Kind::q3_k: return each(Layout<Kind::q3_k>());
        case Kind::q4_k: return each(Layout<Kind::q4_k>());
        case Kind::q5_k: return each(Layout<Kind::q5_k>());
        case Kind::q6_k: return each(Layout<Kind::q6_k>());
        case Kind::iq4_nl: return each(Layout<Kind::iq4_nl>());
        case Kind::iq4_xs: return each(Layout<Kind::iq4_xs>());
        case Kind::f32: return each(Layout<Kind::f32>());
        case Kind::f16: return each(Layout<Kind::f16>());
        case Kind::bf16: return each(Layout<Kind::bf16>());
        case Kind::g4_32: return each(Layout<Kind::g4_32>());
        case Kind::g4_128: return each(Layout<Kind::g4_128>());
        case Kind::g8_128: return each(Layout<Kind::g8_128>());
        case Kind::f8_128: return each(Layout<Kind::f8_128>());
        default: return each(Layout<Kind::mxfp4>());
    }
}

constexpr int LINE = 64;

// Where unit `index` of a panel begins, and the halves of its rows.
template <class Of>
constexpr size_t unit_at(int index) {
    size_t lines = static_cast<size_t>(index) * Of::LINES;
    return LINE * (lines + (Of::PAIRED ? index / 2 + 1 : 0));
}
template <class Of>
constexpr size_t halves_at(int index) {
    return static_cast<size_t>(index / 2) * (2 * Of::LINES + 1) * LINE + index % 2 * (LINE / 2);
}
template <class Of>
constexpr size_t stored_panel_bytes(int k) {
    int units = (k + Of::INPUTS - 1) / Of::INPUTS;
    return LINE * (static_cast<size_t>(units) * Of::LINES + (Of::PAIRED ? (units + 1) / 2 : 0));
}
