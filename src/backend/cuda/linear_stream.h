// linear() on cards with wgmma (compute capability 9.0), for matrices of many rows; linear.cu
// chooses. Numbers differ from those of its twins, so the choice depends on the shapes and the card
// alone.
#pragma once

#include "backend/cuda/kernels.h"

namespace nibble::cuda {

/// Whether linear_stream() is to take all outputs: those in front FP8 or NVFP4, behind them BF16.
bool linear_streams(const LinearArgs& args, const Launcher& launcher);
/// Any number of rows of W; up to 4 x 1,280 columns.
void linear_stream(const LinearArgs& args, const Launcher& launcher);

}  // namespace nibble::cuda
