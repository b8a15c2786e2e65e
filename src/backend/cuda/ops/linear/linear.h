// y [rows][N] = x [rows][K] W^T in F32, for up to six matrices that share x: generation arithmetic.
//   W is BF16, FP8 or NVFP4 (device_weights.h) and is widened to BF16 without error; sums are F32.
//   Oracle: products in double of checks/linear_check.cu. Bytes moved: W once for every block
//   of 8 to 64 rows that a kernel takes (linear_select.h), x and y once. Any number of rows, and a
//   row has the same bits alone and in any batch. y may not overlap x or W; with Finish::add it is
//   read first. linear_select.h says which kernel runs.
#pragma once

#include "backend/cuda/batch_view.h"
#include "backend/cuda/ops/norm/norm.h"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

/// A causal convolution with SiLU as the end of a product of up to kConvolveRowsMax rows, one of
/// each sequence, and up to kConvolveTapsMax taps. It reads and writes what delta_net's own
/// convolution would.
inline constexpr int kConvolveTapsMax = 4;
inline constexpr int kConvolveRowsMax = 8;
struct ConvolveOutput {
  BatchView batch;
  StateView state;
  const float* weights = nullptr;  // [channels][taps]
  int32_t taps = 0;
  int32_t channels = 0;
};

enum class Finish : uint8_t { store, add, convolve };  // add: y += x W^T
struct LinearOutput {
  DeviceLinear weight;
  float* y = nullptr;
  int64_t y_stride = 0;
  Finish finish = Finish::store;
};
inline constexpr int kLinearsMax = 6;
struct LinearArgs {
  LinearOutput outputs[kLinearsMax];  // all have the same number of columns
  int32_t count = 0;
  int32_t rows = 0;
  const uint16_t* x = nullptr;  // [rows][x_stride] BF16, the padding of columns zero
  int64_t x_stride = 0;
  const int32_t* gather = nullptr;  // row of x per row of y; null: the same
  NormInput norm;                   // of a single row, if all inputs_fit(); of more,
                                    // if norms_rows()
  ConvolveOutput convolve;          // of outputs that finish so and whose inputs_fit()
};
void linear(const LinearArgs& args, const Launcher& launcher);

}  // namespace nibble::cuda
