// Packing of LoRA adapters, and their products.
#include "forward/adapters.h"

#include <algorithm>
#include <cmath>

#include "simd/tile.h"

namespace {

constexpr int PANEL_COLUMNS = 16;
// Ranks that a panel of A has twice at most: for the first and for the second half of the inputs.
constexpr int FOLDED_RANKS = PANEL_COLUMNS / 2;
constexpr size_t WORD = 4;
constexpr size_t STEP_BYTES = PANEL_COLUMNS * WORD;
constexpr int REGISTERS = PANEL_COLUMNS / native::LANES;
constexpr size_t REGISTER_BYTES = sizeof(native::Floats);
// A is summed up in as many chains: one would wait for itself.
constexpr int CHAINS = 4;

int words(Format format, int inputs) {
    return format == Format::fp32 ? inputs : (inputs + 1) / 2;
}
// Steps of a whole panel; of a folded one half as many.
int a_steps(Format format, int inputs) { return round_up(words(format, inputs), 2 * CHAINS); }
bool is_folded(int ranks) { return ranks <= FOLDED_RANKS; }
size_t a_bytes(Format format, const AdapterPart &part) {
    const size_t half = a_steps(format, part.inputs) / 2 * STEP_BYTES;
    const int left = part.ranks % PANEL_COLUMNS;
    return half * (part.ranks / PANEL_COLUMNS * 2 + (left == 0 ? 0 : is_folded(left) ? 1 : 2));
}
size_t b_bytes(Format format, const AdapterTile &tile) {
    return TILE / PANEL_COLUMNS * words(format, tile.count) * STEP_BYTES;
}

// Puts one number into a panel.
void put(Format format, float value, int input, int column, uint8_t *panel) {
    if (std::fabs(value) < TINY) return;
    if (format == Format::fp32) {
        reinterpret_cast<float *>(panel)[input * PANEL_COLUMNS + column] = value;
    } else {
        size_t at = (input / 2 * PANEL_COLUMNS + column) * 2 + input % 2;
        reinterpret_cast<bf16 *>(panel)[at] = to_bf16(value);
    }
}

// A module, and its first rank among those of its part.
struct Placed {
    const AdapterModule *module;
    int rank;
};

void pack_a(Format format, const std::vector<Placed> &modules, const AdapterPart &part,
            uint8_t *to) {
    const int steps = a_steps(format, part.inputs);
    const int half = steps / 2 * (format == Format::fp32 ? 1 : 2);
    const size_t panel = steps * STEP_BYTES;
    for (auto [module, first] : modules) {
        for (int i = 0; i < module->rank; i++) {
            const float *row = module->a + static_cast<size_t>(i) * part.inputs;
            const int rank = first + i, before = rank / PANEL_COLUMNS * PANEL_COLUMNS;
            const bool folded = is_folded(part.ranks - before);
            for (int k = 0; k < part.inputs; k++) {
                const bool second = folded && k >= half;
                put(format, row[k], second ? k - half : k,
                    rank - before + (second ? FOLDED_RANKS : 0),
                    to + rank / PANEL_COLUMNS * panel);
            }
        }
    }
}

const Placed *module_of(const std::vector<Placed> &modules, int column) {
    for (const Placed &one : modules) {
        int own = column - one.module->first;
        if (column >= 0 && own >= 0 && own < one.module->columns) return &one;
    }
    return nullptr;
}

AdapterTile ranks_of(const std::vector<Placed> &modules, const std::array<int, TILE> &columns) {
    int first = -1, end = 0;
    for (int column : columns) {
        const Placed *found = module_of(modules, column);
        if (!found) continue;
        first = first < 0 ? found->rank : std::min(first, found->rank);
        end = std::max(end, found->rank + round_up(found->module->rank, 2));
    }
    return {std::max(first, 0), end - std::max(first, 0), nullptr};
}

void pack_b(Format format, const std::vector<Placed> &modules, const AdapterTile &tile,
            const std::array<int, TILE> &columns, uint8_t *to) {
    const size_t panel = words(format, tile.count) * STEP_BYTES;
    for (int i = 0; i < TILE; i++) {
        const Placed *found = module_of(modules, columns[i]);
        if (!found) continue;
        const AdapterModule &module = *found->module;
        const float *row = module.b + static_cast<size_t>(columns[i] - module.first) * module.rank;
        for (int rank = 0; rank < module.rank; rank++) {
            put(format, row[rank], found->rank - tile.first + rank, i % PANEL_COLUMNS,
                to + i / PANEL_COLUMNS * panel);
        }
    }
}

// Reads an operand's rows by words.
struct WordRows {
    const uint8_t *data;
    size_t stride;
    WordRows(const Operand &operand, int row, int first = 0)
        : data(operand.data.as<uint8_t>() + row * operand.stride), stride(operand.stride) {
        data += first * (operand.format == Format::fp32 ? sizeof(float) : sizeof(PairElement));
    }
};

// One step of a folded panel: its upper columns multiply what is `fold` words behind.
template <bool PAIRS, int COUNT, class Address>
[[gnu::always_inline]] inline void add_folded_step(Sums<COUNT, REGISTERS> &sums,
                                                   const WordRows &rows, int step, int fold,
                                                   Address words) {
    constexpr int HALVES = Words<PAIRS>::HALVES;
    repeat<HALVES>([&](auto later) {
        constexpr int HALF = HALVES - 1 - later;
        repeat<COUNT>([&](auto r) {
            const uint8_t *row = rows.data + r * rows.stride;
            const auto low = Words<PAIRS>::spread(row, step, HALF);
            const auto high = Words<PAIRS>::spread(row, step + fold, HALF);
            repeat<REGISTERS>([&](auto j) {
                const auto w = Words<PAIRS>::load(words(j), HALF);
                sums[r][j] = native::fma(native::halves_of<j>(low, high), w, sums[r][j]);
            });
        });
    });
}

template <bool PAIRS, int COUNT, bool FOLDED>
void multiply_a_panel(const WordRows &rows, int steps, const uint8_t *panel, float *out) {
    Sums<COUNT, REGISTERS> sums[CHAINS] = {};
    const int end = FOLDED ? steps / 2 : steps;
    for (int step = 0; step < end; step += CHAINS) {
        repeat<CHAINS>([&](auto chain) {
            const int at = step + chain;
            auto words = [&](int j) { return panel + at * STEP_BYTES + j * REGISTER_BYTES; };
            if constexpr (FOLDED) {
                add_folded_step<PAIRS, COUNT>(sums[chain], rows, at, end, words);
            } else {
                add_step<PAIRS, COUNT, REGISTERS>(sums[chain], rows.data, rows.stride, at, words);
            }
        });
    }
    repeat<COUNT>([&](auto r) {
        repeat<REGISTERS>([&](auto j) {
            using native::add;
            sums[0][r][j] = add(add(sums[0][r][j], sums[1][r][j]),
                                add(sums[2][r][j], sums[3][r][j]));
        });
    });
    store<COUNT, REGISTERS>(sums[0], out, PANEL_COLUMNS);
}

template <bool PAIRS, int COUNT>
void add_b_panel(const WordRows &rows, int steps, const uint8_t *panel, float *out) {
    Sums<COUNT, REGISTERS> sums;
    repeat<COUNT>([&](auto r) {
        repeat<REGISTERS>([&](auto j) {
            sums[r][j] = native::load(out + r * TILE + j * native::LANES);
        });
    });
    for (int step = 0; step < steps; step++) {
        add_step<PAIRS, COUNT, REGISTERS>(sums, rows.data, rows.stride, step, [&](int j) {
            return panel + step * STEP_BYTES + j * REGISTER_BYTES;
        });
    }
    store<COUNT, REGISTERS>(sums, out, TILE);
}

using Kernel = void (*)(const WordRows &, int, const uint8_t *, float *);
template <bool PAIRS, bool FOLDED>
constexpr Kernel A_PANEL[] = {
    multiply_a_panel<PAIRS, 1, FOLDED>, multiply_a_panel<PAIRS, 2, FOLDED>,
    multiply_a_panel<PAIRS, 3, FOLDED>, multiply_a_panel<PAIRS, 4, FOLDED>};
template <bool FOLDED>
constexpr const auto &a_panel(bool pairs) {
    return pairs ? A_PANEL<true, FOLDED> : A_PANEL<false, FOLDED>;
}
template <bool PAIRS>
constexpr Kernel B_PANEL[] = {add_b_panel<PAIRS, 1>, add_b_panel<PAIRS, 2>, add_b_panel<PAIRS, 3>,
                              add_b_panel<PAIRS, 4>};

}  // namespace

Adapter packed_adapter(Format format, const std::vector<AdapterModule> &modules,
                       const std::vector<std::array<TileColumns, ADAPTED_PARTS>> &columns) {
    Adapter adapter;
    adapter.format = format;
    adapter.layers.resize(columns.size());
    std::vector<std::array<std::vector<Placed>, ADAPTED_PARTS>> placed(columns.size());
    for (const AdapterModule &module : modules) {
        AdapterPart &part = adapter.layers[module.layer][module.part];
        placed[module.layer][module.part].push_back({&module, part.ranks});
        part.ranks += round_up(module.rank, 2);
        part.inputs = module.inputs;
        part.scales.resize(part.ranks, 0.0f);
        std::fill_n(part.scales.end() - round_up(module.rank, 2), module.rank, module.scale);
    }
    size_t total = 0;
    auto each = [&](auto visit) {
        for (size_t layer = 0; layer < columns.size(); layer++) {
            for (int part = 0; part < ADAPTED_PARTS; part++) {
                if (adapter.layers[layer][part].ranks) {
                    visit(adapter.layers[layer][part], placed[layer][part], columns[layer][part]);
                }
            }
        }
    };
    each([&](AdapterPart &part, const std::vector<Placed> &own, const TileColumns &tiles) {
        total += a_bytes(format, part);
        for (const auto &tile : tiles) {
            part.tiles.push_back(ranks_of(own, tile));
            total += b_bytes(format, part.tiles.back());
        }
    });
    adapter.data = Memory(total);
    uint8_t *at = adapter.data.as<uint8_t>();
    each([&](AdapterPart &part, const std::vector<Placed> &own, const TileColumns &tiles) {
        part.a = at;
        pack_a(format, own, part, at);
        at += a_bytes(format, part);
        for (size_t i = 0; i < tiles.size(); i++) {
            part.tiles[i].panels = at;
            pack_b(format, own, part.tiles[i], tiles[i], at);
            at += b_bytes(format, part.tiles[i]);
        }
    });
    return adapter;
}

void multiply_a(const AdapterPart &part, const Operand &operand, int row, int count,
                Operand &inner) {
    const bool pairs = operand.format != Format::fp32;
    const int steps = a_steps(operand.format, part.inputs);
    const WordRows rows(operand, row);
    alignas(64) float out[ADAPTED_ROWS * PANEL_COLUMNS];
    for (int first = 0; first < part.ranks; first += PANEL_COLUMNS) {
        const uint8_t *panel = part.a + first / PANEL_COLUMNS * (steps * STEP_BYTES);
        const int ranks = std::min(PANEL_COLUMNS, part.ranks - first);
        const bool folded = is_folded(ranks);
        (folded ? a_panel<true>(pairs) : a_panel<false>(pairs))[count - 1](rows, steps, panel, out);
        const Floats scale = load_first(part.scales.data() + first, ranks);
        for (int r = 0; r < count; r++) {
            float *values = out + r * PANEL_COLUMNS;
            for (int i = 0; folded && i < FOLDED_RANKS; i++) values[i] += values[i + FOLDED_RANKS];
            store(values, load(values) * scale);
            inner.put_columns(row + r, first, ranks, values);
        }
    }
}

void add_b(const AdapterTile &tile, const Operand &inner, int row, int count, float *out) {
    const bool pairs = inner.format != Format::fp32;
    const int steps = words(inner.format, tile.count);
    for (int first = 0; first < count && steps; first += ADAPTED_ROWS) {
        const int rows = std::min(ADAPTED_ROWS, count - first);
        for (int panel = 0; panel < TILE / PANEL_COLUMNS; panel++) {
            (pairs ? B_PANEL<true> : B_PANEL<false>)[rows - 1](
                WordRows(inner, row + first, tile.first), steps,
                tile.panels + panel * (steps * STEP_BYTES),
                out + first * TILE + panel * PANEL_COLUMNS);
        }
    }
}

void fetch_b(Format format, const AdapterTile &tile) {
    const size_t bytes = b_bytes(format, tile);
    for (size_t at = 0; at < bytes; at += 64) native::prefetch(tile.panels + at);
}
