// linear() on cards with wgmma (compute capability 9.0), for a matrix with as many rows as a head
// and for rows too long to be held, and a dense MLP's gate and up; linear.cu and moe.cu choose.
// Numbers differ from those of its twins, so the choice depends on the product and the card alone.
#pragma once

#include "backend/cuda/kernels.h"

namespace nibble::cuda {

/// Whether linear_stream() is to make these products, x not normed: one FP8 or NVFP4 matrix of
/// 1,024 tiles of 64 rows or more, y stored; or some that are not held(), of one format, with 48
/// tiles or more between them and up to 18,432 columns.
bool linear_streams(const LinearArgs& args, const Launcher& launcher);
/// Such products with any number of rows of W.
void linear_stream(const LinearArgs& args, const Launcher& launcher);
/// The same of gate and up of a dense MLP, held() or not, of one format: 48 tiles of 32 rows of
/// each or more, up to 18,432 columns; act = SwiGLU.
bool gate_up_streams(const ExpertArgs& args, const Launcher& launcher);
void gate_up_stream(const ExpertArgs& args, const Launcher& launcher);

}  // namespace nibble::cuda
