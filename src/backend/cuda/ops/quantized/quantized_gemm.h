// y [T, N] = x [T, K] W^T with both in NVFP4, multiplied as 4-bit codes under their block scales
// (fp4_mma.cuh), or both in FP8, multiplied as E4M3 codes (fp8_mma.cuh), for one matrix (a linear)
// or for a stack of experts and lists of rows.
//   y = sum over K of code * scale * code * scale, times the factors of W and of the row of x.
//   Oracle: products in double (checks/quantized_check.cu). Bytes moved:
//   W once for every 32 or 128 rows of x, x once for every 128 rows of W (of each matrix 64 with
//   swiglu), y once. Any number of rows. A row of y depends on its row of x alone, never on T, its
//   place or other rows: one accumulator for each output, in steps of 64 (FP8: 128) along K,
//   whatever the tile. y may not overlap x or W.
#pragma once

#include "backend/cuda/ops/quantized/quantized_rows.h"

struct int4;  // of the CUDA runtime

namespace nibble::cuda {

struct ExpertGroups;

enum class QuantizedOutput : uint8_t {
  bf16,          // y = bf16(x W^T)
  f32,           // y = x W^T
  add,           // y += x W^T, in F32
  swiglu,        // y = bf16(silu(x Wgate^T) * (x Wup^T)); weight = gate, up = up
  swiglu_codes,  // the same rows as quantize_rows() makes them for `next`, bit for bit; NVFP4 alone
};
constexpr bool is_paired(QuantizedOutput output) {
  return output == QuantizedOutput::swiglu || output == QuantizedOutput::swiglu_codes;
}

/// The rows of experts: entry i of a list on the device is at list[stride * i] and has the expert,
/// the first of its rows and their number. Row r of the list is row gather[r] / share of x (without
/// gather r / share) and row scatter[r] of y (r).
struct QuantizedExperts {
  const int32_t* list = nullptr;
  int32_t stride = 3;              // numbers of an entry: ExpertTile has 3, Routing::items 4
  int32_t rows_max = 128;          // most rows of an entry
  const int32_t* count = nullptr;  // [1], entries
  const int32_t* gather = nullptr;
  int32_t share = 1;
  const int32_t* scatter = nullptr;
  /// By tensor memory, in place of gather and scatter: rows of x and y are those of the list.
  const ExpertGroups* groups = nullptr;  // on the host

  constexpr bool present() const { return list != nullptr; }
};

struct QuantizedGemm {
  QuantizedInput x;
  int32_t rows = 0;     // T; with a list: an upper bound of its rows
  DeviceLinear weight;  // NVFP4 or FP8, K = weight.cols a multiple of 128; with a list a stack
  DeviceLinear up;      // paired only, of the same shape and format; N is a multiple of 64 then
  QuantizedOutput output = QuantizedOutput::bf16;
  ColumnOrder order = ColumnOrder::packed;  // of what swiglu writes; plain: as generation has it
  void* y = nullptr;
  int64_t y_stride = 0;  // elements; with swiglu even
  // swiglu_codes only: a row in place of each row of y, for a matrix that takes_fp4(), of N columns
  // and padding.
  QuantizedInput codes;
  DeviceLinear next;
  QuantizedExperts experts;
};

/// Loads all kernels that the card can use and raises their limits of shared memory. Once per
/// device, before the first launch, so that none takes memory of the device later.
void quantized_gemm_prepare(const Launcher& launcher);

/// `matrices`: those of a stack of experts that are read, for the choice of a tile and the log of
/// launches.
void quantized_gemm(const QuantizedGemm& gemm, const Launcher& launcher, int64_t matrices = 1);

}  // namespace nibble::cuda
