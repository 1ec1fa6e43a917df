#pragma once

#include "matrix/matrix.h"
#include "threads/pool.h"

struct Model;

// A plain loop of multiply-adds. Of bytes: one operand from memory, all in registers, or by tiles.
enum class Loop { memory, registers, tiles };
// Does `steps` rounds of a format's multiply-adds on every thread; returns how many: none by tiles
// where there are none.
double multiply_adds(Pool &pool, Format format, Loop loop, long steps);

// Reads every packed matrix once; returns the bytes.
size_t stream(Model &model);
