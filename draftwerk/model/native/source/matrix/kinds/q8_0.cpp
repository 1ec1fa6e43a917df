#include "matrix/stored_kernel.h"

const stored_kernel::Kernels stored_kernel::Q8_0 = kernels_of<Kind::q8_0, true>();
