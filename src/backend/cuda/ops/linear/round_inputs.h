// Rows of inputs rounded as a checkpoint declares them for one linear: the emulation of
// `--activations declared`. Formulas: docs/formats.md 4. Of `count` rows of weight.cols BF16
// columns, padding included, BF16 rows are made:
//   nvfp4       code * block scale, exactly; 1 / G is in the weight's factors
//   fp8_tensor  the code, exactly; the scale is in the weight's factors
//   fp8_token, fp8_group  bf16(code * scale), within 2^-9
//   Oracle: tensor/activation_codec.h on the BF16 values that the rows have (block_test.cc). Bytes
//   moved: each row once in and once out. No workspace. Any number of rows, one thread block each;
//   a row's bits do not depend on the others. `out` may be x if each row is read for itself alone;
//   else they may not overlap.
#pragma once

#include "backend/cuda/ops/linear/prefill_order.h"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

/// Rounds `count` rows. Pointers without a length have weight.cols columns, padding included, in
/// each row.
struct RoundInputs {
  DeviceLinear weight;  // its activations, and of the matrix `matrix[i]` of a stack its scale
  int32_t count = 0;
  const uint16_t* x = nullptr;  // [rows][x_stride]
  int64_t x_stride = 0;
  uint16_t* out = nullptr;  // [rows][out_stride]; may be x, if a row is read for itself alone
  int64_t out_stride = 0;
  const int32_t* from = nullptr;           // [count], row of x; null: i / share
  int32_t share = 1;                       // adjacent rows of out that read one row of x
  const int32_t* to = nullptr;             // [count], row of out; null: i
  const int32_t* matrix = nullptr;         // [count]; null: the first
  ColumnOrder order = ColumnOrder::plain;  // packed: as prompts have it; plain: as generation does
};
void round_inputs(const RoundInputs& args, const Launcher& launcher);

}  // namespace nibble::cuda
