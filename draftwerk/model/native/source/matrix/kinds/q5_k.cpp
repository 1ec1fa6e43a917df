#include "matrix/stored_kernel.h"

const stored_kernel::Kernels stored_kernel::Q5_K = kernels_of<Kind::q5_k, true>();
