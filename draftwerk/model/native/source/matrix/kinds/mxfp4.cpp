#include "matrix/stored_kernel.h"

const stored_kernel::Kernels stored_kernel::MXFP4 = kernels_of<Kind::mxfp4, false>();
