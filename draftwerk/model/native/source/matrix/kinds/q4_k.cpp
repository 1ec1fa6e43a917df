#include "matrix/stored_kernel.h"

const stored_kernel::Kernels stored_kernel::Q4_K = kernels_of<Kind::q4_k, true>();
