#include "forward/copies.h"

#include <cstring>
#include <vector>

void copy_units(uint8_t *tensor, int layers, int64_t units, int64_t bytes, const int64_t *from,
                const int64_t *to, int count) {
    // Read all, then write all: a unit may be both a source and a target.
    std::vector<uint8_t> held(static_cast<size_t>(count) * bytes);
    for (int layer = 0; layer < layers; layer++, tensor += units * bytes) {
        for (int i = 0; i < count; i++) memcpy(&held[i * bytes], tensor + from[i] * bytes, bytes);
        for (int i = 0; i < count; i++) memcpy(tensor + to[i] * bytes, &held[i * bytes], bytes);
    }
}
