// The product of a tile of stored blocks with many rows by AMX: the integers, and the order of
// floats, of stored_kernel.h.
#pragma once

#include "matrix/readings.h"

namespace stored_kernel {

constexpr int PANEL_COLUMNS = 16;

// At most amx::ROWS of an operand.
struct TiledRows {
    const uint8_t *data;            // StoredGroup[]
    size_t stride;
    int count;
};

// Weights are widened to signed bytes, eight groups of inputs at a time; the integers come back by
// way of memory.
template <Kind KIND>
class TiledProduct {
    using Of = Layout<KIND>;
    using Read = Reading<KIND>;
    static constexpr int GROUPS = Of::INPUTS / BLOCK, AT_ONCE = 8, UNITS = AT_ONCE / GROUPS;
    static_assert(Read::SUMS == 1, "two tile products a group are slower than vectors");
    static constexpr size_t LINE_FLOATS = amx::WORD_BYTES / sizeof(float);

    alignas(64) uint8_t weights_[AT_ONCE][8][amx::WORD_BYTES];    // by group and word
    alignas(64) int32_t sums_[AT_ONCE][amx::ROWS][LINE_FLOATS];
    Floats scales_[AT_ONCE], minima_[AT_ONCE], d_, dmin_;

    // A unit, as the one at `first` of these groups.
    void read(const uint8_t *at, const uint8_t *halves, int first) {
        const typename Read::Scales scales(at);
        repeat<GROUPS>([&](auto g) INLINED {
            constexpr int G = decltype(g)::value;
            repeat<8>([&](auto t) INLINED {
                const Ints word = Read::template word<G, decltype(t)::value>(at);
                native::store(weights_[first + G][t], native::subtract_bytes(word, Read::CENTRE));
            });
            if constexpr (Read::SCALED) {
                scales_[first + G] = native::to_floats(scales.template scale<G, 0>());
                if constexpr (Read::MINIMA > 0) {
                    minima_[first + G] = native::to_floats(scales.template minimum<G, 0>());
                }
            } else {
                scales_[first + G] = Read::template d<G>(at, halves);
                if constexpr (Read::MINIMA > 0) minima_[first + G] = Read::m(at);
            }
        });
        if constexpr (Read::SCALED) d_ = Read::d_of(at, halves);
        if constexpr (Read::SCALED && Read::MINIMA > 0) dmin_ = Read::dmin(at);
    }

    // Row `row`, whose first group is `x`, of one unit with integer scales.
    Floats scaled(const StoredGroup *x, int row, Floats sum) const {
        Floats part = native::broadcast(0.0f), low = part;
        repeat<AT_ONCE>([&](auto g) INLINED {
            const Floats total = native::multiply(sum_of(g, row), scales_[g]);
            part = native::fma(total, native::broadcast(x[g].scale), part);
            if constexpr (Read::MINIMA > 0) {
                low = native::fma(minima_[g], native::broadcast(x[g].weighed), low);
            }
        });
        sum = native::fma(part, d_, sum);
        if constexpr (Read::MINIMA == 0) return sum;
        return native::fma(native::subtract(native::broadcast(0.0f), low), dmin_, sum);
    }
    Floats plain(const StoredGroup *x, int row, int groups, Floats sum) const {
        for (int g = 0; g < groups; g++) {
            const Floats whole = native::multiply(sum_of(g, row), scales_[g]);
            sum = native::fma(whole, native::broadcast(x[g].scale), sum);
            if constexpr (Read::MINIMA > 0) {
                sum = native::fma(minima_[g], native::broadcast(x[g].weighed), sum);
            }
        }
        return sum;
    }
    Floats sum_of(int group, int row) const {
        return native::to_floats(native::load_ints(sums_[group][row]));
    }

    // out[r][16] += the rows' products with `now` units behind `unit`.
    void add(const amx::Tiles &tiles, const TiledRows &rows, int unit, int now,
             const uint8_t *panel, const uint8_t *next, float *out) {
        for (int i = 0; i < now; i++) {
            const size_t begin = unit_at<Of>(unit + i), halves = halves_at<Of>(unit + i);
            read(panel + begin, panel + halves, i * GROUPS);
            if (!next) continue;
            if (Of::PAIRED && (unit + i) % 2 == 0) native::prefetch(next + halves);
            for (int j = 0; j < Of::LINES; j++) native::prefetch(next + begin + j * LINE);
        }
        const uint8_t *groups = rows.data + unit * GROUPS * sizeof(StoredGroup);
        tiles.multiply(reinterpret_cast<const int8_t *>(groups), rows.stride, sizeof(StoredGroup),
                       weights_[0][0], now * GROUPS, sums_[0][0]);
        for (int r = 0; r < rows.count; r++, out += TILE, groups += rows.stride) {
            const auto *x = reinterpret_cast<const StoredGroup *>(groups);
            const Floats sum = native::load(out);
            if constexpr (Read::SCALED) native::store(out, scaled(x, r, sum));
            else native::store(out, plain(x, r, now * GROUPS, sum));
        }
    }

  public:
    // The panels of a tile take turns, so that what they share of the rows is near.
    void multiply(const TiledRows &rows, int k, const StoredTile &tile, const uint8_t *next,
                  float *out) {
        const amx::Tiles tiles(rows.count);
        const int units = (k + Of::INPUTS - 1) / Of::INPUTS;
        for (int i = 0; i < rows.count * TILE; i += native::LANES) {
            native::store(out + i, native::broadcast(0.0f));
        }
        for (int unit = 0; unit < units; unit += UNITS) {
            const int now = units - unit < UNITS ? units - unit : UNITS;
            for (int panel = 0; panel * PANEL_COLUMNS < tile.count; panel++) {
                const size_t offset = panel * tile.panel_bytes;
                add(tiles, rows, unit, now, tile.data + offset, next ? next + offset : nullptr,
                    out + panel * PANEL_COLUMNS);
            }
        }
    }
};

template <Kind KIND>
void multiply_tiled(const TiledRows &rows, int k, const StoredTile &tile, const uint8_t *next,
                    float *out) {
    TiledProduct<KIND> product;
    product.multiply(rows, k, tile, next, out);
}

}  // namespace stored_kernel
