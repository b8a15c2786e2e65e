// RMS norm: x = bf16(weight * (h * rsqrt(mean(h^2) + eps))), in F32 until it is stored, and the sum
// into the residual stream h before it.
//   Oracle: reference::norm; bytes moved: h read and written once, y or the experts' rows read
//   once, x written once. Any number of rows; a row's bits do not depend on the others. y may not
//   overlap h or x.
#pragma once

#include "backend/cuda/runtime/launcher.h"

namespace nibble::cuda {

inline constexpr int kHiddenMax = 8192;

/// A product may compute its own input, x = bf16(norm(h)), if the columns are a multiple of 4.
struct NormInput {
  const float* h = nullptr;  // [rows][columns]; null: x is there
  const float* weight = nullptr;
  int32_t columns = 0;
  float eps = 0.0F;
  uint16_t* x = nullptr;  // [rows][x_stride]; products of several rows leave it for other readers
  int64_t x_stride = 0;
};

/// h += the block's output, x = norm(h): the seam between two blocks. The output is `y`, or the sum
/// over the experts of a row by its choices, plus the shared expert.
struct AddNormArgs {
  int32_t rows = 0;
  int32_t hidden = 0;                  // at most kHiddenMax
  const float* y = nullptr;            // [rows][hidden]; with experts: [rows * top_k][hidden];
                                       // null: h has it already
  int32_t top_k = 0;                   // 0: no experts
  const float* weights = nullptr;      // [rows][top_k]
  const float* shared = nullptr;       // [rows][hidden], or null
  const float* shared_gate = nullptr;  // [rows], logits at stride `gate_stride`
  int64_t gate_stride = 0;
  float* h = nullptr;           // [rows][hidden]
  const float* norm = nullptr;  // [hidden]
  uint16_t* x = nullptr;        // [rows][x_stride]
  int64_t x_stride = 0;
  float* hidden_out = nullptr;  // [rows][hidden] F32 norm(h), or null
  float eps = 0.0F;
  int32_t packed_from = INT32_MAX;  // rows from here on get x in packed column order
};
void add_norm(const AddNormArgs& args, const Launcher& launcher);

/// CombineNormArgs is add_norm for prompts, whose experts' results are BF16 and sorted by expert.
struct CombineNormArgs {
  AddNormArgs base;                   // y and shared of it are unused
  const uint16_t* y = nullptr;        // [rows * top_k][hidden]
  const int32_t* position = nullptr;  // [rows * top_k] -> row of y
  const uint16_t* shared = nullptr;   // [rows][hidden], or null
};
void combine_norm(const CombineNormArgs& args, const Launcher& launcher);

/// Copies to[i] = from[rows[i]], rows of `width` numbers.
void gather_rows(const float* from, const int32_t* rows, int32_t count, int32_t width, float* to,
                 const Launcher& launcher);

}  // namespace nibble::cuda
