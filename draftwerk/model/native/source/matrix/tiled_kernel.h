// The product of a tile of stored blocks with many rows by AMX: the integers, and the order of
// floats, of stored_kernel.h.
#pragma once

#include <algorithm>
#include <cstring>

#include "matrix/readings.h"

namespace stored_kernel {

constexpr int PANEL_COLUMNS = 16;

// At most amx::ROWS of an operand.
struct TiledRows {
    const uint8_t *data;            // StoredGroup[]
    size_t stride;
    int count;
};

// Weights are widened to signed bytes, a few groups of inputs of a few panels at a time: those, the
// integers that come back by way of memory, and the rows are then in the L1 cache together. Of a
// unit with integer scales all groups at once, so that its sums stay in registers. If a group has two
// sums, each is a product with half of its weights and with zeros, as if they were two panels;
// of all groups that would be too much for the cache.
template <Kind KIND>
class TiledProduct {
    using Of = Layout<KIND>;
    using Read = Reading<KIND>;
    static constexpr bool HAS_LOW = Read::SCALED && Read::MINIMA > 0;
    static constexpr int GROUPS = Of::INPUTS / BLOCK, SUMS = Read::SUMS;
    static constexpr int AT_ONCE = SUMS == 1 && Read::SCALED ? GROUPS : 2;
    static constexpr int WIDE = Read::SCALED ? 1 : TILE / PANEL_COLUMNS;
    static constexpr int PARTS = AT_ONCE * SUMS * WIDE;
    static constexpr int SCALES = Read::SCALED ? GROUPS * SUMS : PARTS;
    static_assert(SUMS == 1 || !HAS_LOW);
    static constexpr int ROWS = Read::SCALED ? 8 : 4;       // whose sums are in registers

    const TiledRows &rows_;
    const StoredTile &tile_;
    const uint8_t *const next_;
    float *const out_;
    // Of the next tile, for each pass over a few rows.
    const int lines_a_pass_ = 1 + Of::LINES * AT_ONCE / GROUPS / (rows_.count / ROWS);
    int first_panel_ = 0, panels_ = 0, first_group_ = 0;
    // By group and panel, or sum.
    alignas(64) uint8_t weights_[PARTS][8][amx::WORD_BYTES];
    alignas(64) int32_t sums_[PARTS][amx::ROWS][PANEL_COLUMNS];
    Floats scales_[SCALES], minima_[SCALES], d_, dmin_;
    Floats begun_[SUMS == 1 ? 1 : amx::ROWS];               // of the unit's groups before

    // Group G of a unit, as number `at` of those at once.
    template <int G>
    void read(int unit, int at) {
        for (int panel = 0; panel < panels_; panel++) {
            const uint8_t *data = tile_.data + (first_panel_ + panel) * tile_.panel_bytes;
            const uint8_t *lines = data + unit_at<Of>(unit), *halves = data + halves_at<Of>(unit);
            const int to = at * SUMS * panels_ + panel;
            repeat<8>([&](auto t) INLINED {
                const Ints word = Read::template word<G, decltype(t)::value>(lines);
                native::store(weights_[to + t * SUMS / 8][t],
                              native::subtract_bytes(word, Read::CENTRE));
            });
            if constexpr (!Read::SCALED) {
                scales_[to] = Read::template d<G>(lines, halves);
                if constexpr (Read::MINIMA > 0) minima_[to] = Read::m(lines);
            }
        }
    }
    // The integer scales of a unit of one panel.
    void read_scales(int unit) {
        const uint8_t *data = tile_.data + first_panel_ * tile_.panel_bytes;
        const uint8_t *lines = data + unit_at<Of>(unit);
        const typename Read::Scales scales(lines);
        repeat<GROUPS>([&](auto g) INLINED {
            constexpr int G = decltype(g)::value;
            repeat<SUMS>([&](auto half) INLINED {
                scales_[G * SUMS + half] = native::to_floats(scales.template scale<G, half>());
            });
            if constexpr (HAS_LOW) minima_[G] = native::to_floats(scales.template minimum<G, 0>());
        });
        d_ = Read::d_of(lines, data + halves_at<Of>(unit));
        if constexpr (HAS_LOW) dmin_ = Read::dmin(lines);
    }

    // Fetches lines `first` .. `last` of the next tile's panel, of those that stand where a panel's
    // groups from `group` on do: spread over the rows, because memory has a pace.
    void fetch(int panel, int group, int first, int last) const {
        if (!next_) return;
        const uint8_t *next = next_ + panel * tile_.panel_bytes;
        const int unit = group / GROUPS;
        if (Of::PAIRED && first == 0) native::prefetch(next + halves_at<Of>(unit));
        const uint8_t *from = next + unit_at<Of>(unit) + group % GROUPS * Of::LINES / GROUPS * LINE;
        for (int i = first; i < last; i++) native::prefetch(from + i * LINE);
    }

    // What COUNT rows from `row` on, whose bytes are at `x`, have of `groups` groups of MANY panels.
    template <int COUNT, int MANY>
    [[gnu::always_inline]] inline void add_rows(const uint8_t *x, int row, int panel, int groups) {
        Floats sums[COUNT][MANY], low[COUNT][MANY];
        float *out = out_ + row * TILE + (first_panel_ + panel) * PANEL_COLUMNS;
        auto each = [&](auto what) INLINED {
            repeat<COUNT>([&](auto r) INLINED {
                repeat<MANY>([&](auto p) INLINED {
                    what(sums[r][p], low[r][p], out + r * TILE + p * PANEL_COLUMNS);
                });
            });
        };
        each([&](Floats &sum, Floats &low, const float *out) INLINED {
            sum = Read::SCALED ? native::broadcast(0.0f) : native::load(out);
            low = native::broadcast(0.0f);
        });
        if constexpr (SUMS == 2) {
            if (first_group_) repeat<COUNT>([&](auto r) INLINED { sums[r][0] = begun_[row + r]; });
        }
        auto add = [&](int g, int at) INLINED {
            Floats scales[MANY], minima[MANY];
            repeat<MANY>([&](auto p) INLINED {
                scales[p] = scales_[first_group_ * SUMS + at + p];
                if constexpr (Read::MINIMA > 0) minima[p] = minima_[at + p];
            });
            repeat<COUNT>([&](auto r) INLINED {
                const auto *of = reinterpret_cast<const StoredGroup *>(x + r * rows_.stride) + g;
                const Floats scale = native::broadcast(of->scale);
                const Floats weighed = native::broadcast(of->weighed);
                repeat<MANY>([&](auto p) INLINED {
                    const Ints whole = native::load_ints(sums_[at + p][row + r]);
                    Floats total = native::multiply(native::to_floats(whole), scales[p]);
                    if constexpr (SUMS == 2) {
                        const Ints other = native::load_ints(sums_[at + 1][row + r]);
                        total = native::fma(native::to_floats(other),
                                            scales_[first_group_ * SUMS + at + 1], total);
                    }
                    sums[r][p] = native::fma(total, scale, sums[r][p]);
                    if constexpr (Read::MINIMA > 0) {
                        Floats &to = HAS_LOW ? low[r][p] : sums[r][p];
                        to = native::fma(minima[p], weighed, to);
                    }
                });
            });
        };
        if constexpr (Read::SCALED) {
            repeat<AT_ONCE>([&](auto g) INLINED { add(g, SUMS * g); });
        } else {
            for (int g = 0; g < groups; g++) add(g, panel + g * panels_);
        }
        if constexpr (SUMS == 2) {
            if (first_group_ + AT_ONCE < GROUPS) {
                return repeat<COUNT>([&](auto r) INLINED { begun_[row + r] = sums[r][0]; });
            }
        }
        each([&](Floats sum, Floats low, float *out) INLINED {
            if constexpr (Read::SCALED) sum = native::fma(sum, d_, native::load(out));
            if constexpr (HAS_LOW) {
                sum = native::fma(native::subtract(native::broadcast(0.0f), low), dmin_, sum);
            }
            native::store(out, sum);
        });
    }

    // The products of `groups` groups that were read, `first` the first of them.
    void add(int first, int groups) {
        const uint8_t *x = rows_.data + first * sizeof(StoredGroup);
        amx::multiply(rows_.count, reinterpret_cast<const int8_t *>(x), rows_.stride,
                      sizeof(StoredGroup), weights_[0][0], groups, panels_ * SUMS, sums_[0][0]);
        if (panels_ == WIDE) return add_panels<WIDE>(x, 0, first, groups);
        for (int panel = 0; panel < panels_; panel++) add_panels<1>(x, panel, first, groups);
    }
    template <int MANY>
    void add_panels(const uint8_t *x, int panel, int first, int groups) {
        const int lines = (first % GROUPS + groups) * Of::LINES / GROUPS -
                          first % GROUPS * Of::LINES / GROUPS;
        int row = 0, line = 0;
        for (; row + ROWS <= rows_.count; row += ROWS, line += lines_a_pass_) {
            for (int p = 0; p < MANY; p++) {
                fetch(first_panel_ + panel + p, first, line, std::min(lines, line + lines_a_pass_));
            }
            add_rows<ROWS, MANY>(x + row * rows_.stride, row, panel, groups);
        }
        for (; row < rows_.count; row++) {
            add_rows<1, MANY>(x + row * rows_.stride, row, panel, groups);
        }
    }

    // So many units from `unit` on, one where it has several groups.
    void add_units(int unit, int count) {
        if constexpr (Read::SCALED) read_scales(unit);
        if constexpr (GROUPS == 1) {
            for (int at = 0; at < count; at++) read<0>(unit + at, at);
            add(unit, count);
        } else {
            repeat<GROUPS / AT_ONCE>([&](auto part) {
                constexpr int FIRST = part * AT_ONCE;
                if constexpr (Read::SCALED) first_group_ = FIRST;
                repeat<AT_ONCE>([&](auto at) { read<FIRST + at>(unit, at); });
                add(unit * GROUPS + FIRST, AT_ONCE);
            });
        }
    }

  public:
    TiledProduct(const TiledRows &rows, const StoredTile &tile, const uint8_t *next, float *out)
        : rows_(rows), tile_(tile), next_(next), out_(out) {
        if constexpr (SUMS == 2) memset(weights_, 0, sizeof weights_);
    }

    void multiply(int k) {
        constexpr int STEP = GROUPS == 1 ? AT_ONCE : 1;
        amx::use_rows(rows_.count);
        for (int i = 0; i < rows_.count * TILE; i += native::LANES) {
            native::store(out_ + i, native::broadcast(0.0f));
        }
        const int units = (k + Of::INPUTS - 1) / Of::INPUTS;
        const int panels = (tile_.count + PANEL_COLUMNS - 1) / PANEL_COLUMNS;
        for (int unit = 0; unit < units; unit += STEP) {
            for (first_panel_ = 0; first_panel_ < panels; first_panel_ += WIDE) {
                panels_ = std::min(WIDE, panels - first_panel_);
                add_units(unit, std::min(STEP, units - unit));
            }
        }
    }
};

template <Kind KIND>
void multiply_tiled(const TiledRows &rows, int k, const StoredTile &tile, const uint8_t *next,
                    float *out) {
    TiledProduct<KIND>(rows, tile, next, out).multiply(k);
}

}  // namespace stored_kernel
