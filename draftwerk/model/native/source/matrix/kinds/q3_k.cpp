#include "matrix/stored_kernel.h"

const stored_kernel::Kernels stored_kernel::Q3_K = kernels_of<Kind::q3_k, false>();
