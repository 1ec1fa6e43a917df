#pragma once

#include "matrix/matrix.h"
#include "threads/pool.h"

struct Model;

// Does `steps` rounds of a format's multiply-adds in registers on every thread; returns how many.
double multiply_adds(Pool &pool, Format format, long steps);

// Reads every packed matrix once; returns the bytes.
size_t stream(Model &model);
