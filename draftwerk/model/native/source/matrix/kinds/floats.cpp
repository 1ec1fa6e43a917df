#include "matrix/stored_kernel.h"

const stored_kernel::Kernels stored_kernel::F32 = kernels_of<Kind::f32, false>();
const stored_kernel::Kernels stored_kernel::F16 = kernels_of<Kind::f16, false>();
const stored_kernel::Kernels stored_kernel::BF16 = kernels_of<Kind::bf16, false>();
const stored_kernel::Kernels stored_kernel::F8_128 = kernels_of<Kind::f8_128, false>();
