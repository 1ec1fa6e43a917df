// Packs whole matrices on all threads.
#pragma once

#include "matrix/matrix.h"
#include "threads/pool.h"

// The matrix in tiles. Where it consists of several `parts` one above the other, such as gate and
// up, their tiles alternate, so that the thread that computes one has the other at hand.
Matrix packed(Pool &pool, Format format, const Source &source, int parts);
