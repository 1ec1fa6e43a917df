#include "matrix/stored_kernel.h"

const stored_kernel::Kernels stored_kernel::Q2_K = kernels_of<Kind::q2_k, false>();
