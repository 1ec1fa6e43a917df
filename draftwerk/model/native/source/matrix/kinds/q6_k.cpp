#include "matrix/stored_kernel.h"

const stored_kernel::Kernels stored_kernel::Q6_K = kernels_of<Kind::q6_k, true>();
