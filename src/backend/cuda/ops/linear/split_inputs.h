// The kernels that `--activations f32` needs beside the kernels of generation arithmetic: F32 rows
// as inputs in kF32Parts BF16 parts (device_weights.h), and sums of products in F32.
//   split   part_i = bf16(x - part_0 - ... - part_(i-1)); the parts add up to x from 2^-110 up
//   swiglu  split(silu(gate) * up)        spread  rows repeated for their assignments
//   add     y += more, more = 0
//   Oracle: reference blocks in F32 (f32_test.cc). Bytes moved: each input once, each output once.
//   No workspace. Any number of rows; a row's bits do not depend on the others. Outputs may not
//   overlap inputs.
#pragma once

#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

/// Splits F32 rows into parts; padding columns are left as they are.
struct SplitRows {
  int32_t rows = 0;
  int32_t columns = 0;
  const float* from = nullptr;  // [rows][columns]
  uint16_t* out = nullptr;      // [rows][out_stride]
  int64_t out_stride = 0;
};
void split_rows(const SplitRows& args, const Launcher& launcher);

/// Makes a row for each assignment, `share` adjacent ones of each row of `from`, and after them the
/// rows themselves.
struct SpreadRows {
  int32_t assignments = 0;
  int32_t rows = 0;  // rows of `from`, which follow the assignments
  int32_t share = 1;
  const uint16_t* from = nullptr;  // [rows][stride]
  uint16_t* out = nullptr;         // [assignments + rows][stride]
  int64_t stride = 0;              // stride of both, a multiple of 8
};
void spread_rows(const SpreadRows& args, const Launcher& launcher);

/// Computes silu(gate) * up in parts; they are zero beyond a row's columns.
struct SwigluArgs {
  int32_t rows = 0;
  int32_t shared_begin = 0;  // rows before it have routed_columns, the others shared_columns
  int32_t routed_columns = 0;
  int32_t shared_columns = 0;
  const float* gate = nullptr;  // [rows][columns]
  const float* up = nullptr;    // [rows][columns]
  int32_t columns = 0;
  uint16_t* out = nullptr;  // [rows][out_stride], kF32Parts * columns or more
  int64_t out_stride = 0;
};
void swiglu(const SwigluArgs& args, const Launcher& launcher);

/// Adds `more` to y and sets it to 0; both have `count` numbers.
void add_and_clear(float* y, float* more, int64_t count, const Launcher& launcher);

}  // namespace nibble::cuda
