#include "matrix/stored_kernel.h"

const stored_kernel::Kernels stored_kernel::IQ4_NL = kernels_of<Kind::iq4_nl, true>();
