#pragma once

#include "matrix/matrix.h"
#include "threads/pool.h"

struct Model;

// Does `steps` rounds of a format's multiply-adds on every thread; returns how many. Of bytes, one
// operand comes from memory unless all are `in_registers`.
double multiply_adds(Pool &pool, Format format, bool in_registers, long steps);

// Reads every packed matrix once; returns the bytes.
size_t stream(Model &model);
