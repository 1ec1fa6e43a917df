#include "matrix/stored_kernel.h"

const stored_kernel::Kernels stored_kernel::IQ4_XS = kernels_of<Kind::iq4_xs, false>();
