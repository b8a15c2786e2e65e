// linear() for matrices whose inputs fit registers (held.cuh); linear.cu chooses.
#pragma once

#include "backend/cuda/kernels.h"

namespace nibble::cuda {

/// All outputs held(); those in front of one format, those behind it BF16, if any.
void linear_held(const LinearArgs& args, const Launcher& launcher);

}  // namespace nibble::cuda
