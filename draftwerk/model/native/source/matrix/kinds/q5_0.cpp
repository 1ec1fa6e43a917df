#include "matrix/stored_kernel.h"

const stored_kernel::Kernels stored_kernel::Q5_0 = kernels_of<Kind::q5_0, true>();
