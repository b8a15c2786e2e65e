// linear() on cards with wgmma (compute capability 9.0), for a matrix with as many rows as a head;
// linear.cu chooses. Numbers differ from those of its twins, so the choice depends on the product
// and the card alone.
#pragma once

#include "backend/cuda/kernels.h"

namespace nibble::cuda {

/// Whether linear_stream() is to make this product: one FP8 or NVFP4 matrix of 65,536 rows or more,
/// x not normed, y stored.
bool linear_streams(const LinearArgs& args, const Launcher& launcher);
/// Such a product with any number of rows of W; up to 4 x 1,280 columns.
void linear_stream(const LinearArgs& args, const Launcher& launcher);

}  // namespace nibble::cuda
