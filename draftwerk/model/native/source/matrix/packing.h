// Packs whole matrices on all threads.
#pragma once

#include "matrix/matrix.h"
#include "threads/pool.h"

// Memory for packed matrices, one after the other; without a base each has memory of its own.
struct Arena {
    uint8_t *base = nullptr;
    size_t bytes = 0, used = 0;
    bool is_packed = false;         // it holds what packing would write

    Memory take(size_t size);
};

// The matrix in tiles. Where it consists of several `parts` one above the other, such as gate and
// up, their tiles alternate, so that the thread that computes one has the other at hand. In an
// arena that is packed, the source's numbers are not read.
Matrix packed(Pool &pool, Format format, const Source &source, int parts, Arena *arena = nullptr);

// What a matrix takes in an arena.
size_t packed_bytes(Format format, int n, int k, int parts);
