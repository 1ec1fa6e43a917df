#include "matrix/stored_kernel.h"

const stored_kernel::Kernels stored_kernel::Q4_0 = kernels_of<Kind::q4_0, true>();
