#include "matrix/stored_kernel.h"

const stored_kernel::Kernels stored_kernel::G4_32 = kernels_of<Kind::g4_32, false>();
const stored_kernel::Kernels stored_kernel::G4_128 = kernels_of<Kind::g4_128, true>();
const stored_kernel::Kernels stored_kernel::G8_128 = kernels_of<Kind::g8_128, true>();
