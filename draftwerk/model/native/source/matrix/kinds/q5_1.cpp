#include "matrix/stored_kernel.h"

const stored_kernel::Kernels stored_kernel::Q5_1 = kernels_of<Kind::q5_1, false>();
