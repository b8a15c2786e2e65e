// Matrix products of prompt arithmetic: y [T, N] = x [T, K] W^T with W [N, K] in the format of the
// file, for one weight (a linear) or a stack of experts over tokens sorted by expert.
//   Oracle: products in double (checks/prefill_gemm_check.cu). Bytes moved: W once for every
//   128 tokens, x once for every 256 rows of W (192, where y is added to), y once; bound by 2 T N K
//   FLOPs. A row of y depends on its row of x alone, never on T, its place or other rows (steps of
//   64 along K, one accumulator for each output). y may not overlap x or W.
#pragma once

#include <cstdint>

#include "backend/cuda/ops/linear/prefill_order.h"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/weights/device_weights.h"

namespace nibble::cuda {

enum class GemmOutput : uint8_t {
  bf16,    // y = bf16(x W^T)
  f32,     // y = x W^T
  swiglu,  // y = bf16(silu(x Wgate^T) * (x Wup^T)) in packed order; weight = gate, up = up
  // A row of x is two rows [high | low] of K columns each, whose sum is multiplied
  // (gradient_product.cu); plain BF16 matrices alone:
  f32_of_sums,    // y = (high + low) W^T in F32
  added_of_sums,  // y += (high + low) W^T in F32
  // These have a bias b [N] and take plain BF16 matrices alone (vision_gemm.cu):
  bias,       // y = bf16(x W^T + b)
  gelu_tanh,  // y = bf16(gelu(x W^T + b)), its tanh approximation
  gelu_erf,   // y = bf16(gelu(x W^T + b))
  add,        // y += x W^T + b, in F32
};
constexpr bool has_bias(GemmOutput output) { return output >= GemmOutput::bias; }
constexpr bool takes_sums(GemmOutput output) {
  return output == GemmOutput::f32_of_sums || output == GemmOutput::added_of_sums;
}

/// An ExpertTile has 128 rows or fewer of one expert.
struct ExpertTile {
  int32_t expert;
  int32_t begin;  // first of its rows among the sorted assignments
  int32_t count;  // 1..128
};

inline constexpr int kTileTokens = 128;
inline constexpr int kStepColumns = 64;

struct PrefillGemm {
  /// x in packed column order (prefill_order.h), 16-byte aligned: what swiglu, delta_prefill,
  /// flash_prefill and the norms of prompt rows write. Another writer stores column p at
  /// packed_position(p).
  const uint16_t* packed_x = nullptr;
  int64_t x_stride = 0;  // elements between rows, a multiple of 8
  int32_t rows = 0;      // T; with tiles: an upper bound of the assignments
  /// N = weight.rows, with swiglu a multiple of 64; K = weight.cols, a multiple of 64. 16-byte
  /// aligned; with tiles, a stack of such matrices.
  DeviceLinear weight;
  DeviceLinear up;  // swiglu only; same format and layout of factors
  GemmOutput output = GemmOutput::bf16;
  const float* bias = nullptr;  // [N], where has_bias(output)
  void* y = nullptr;
  int64_t y_stride = 0;

  // Experts: tiles and their number live on the device (route_sort of prompt_route.h).
  const ExpertTile* tiles = nullptr;
  const int32_t* tile_count = nullptr;
  const int32_t* gather = nullptr;  // assignment -> row of x; null: the assignment itself
};

/// Loads all kernels and raises their limits of shared memory. Once per device, before the first
/// launch, so that none takes memory of the device later.
void prefill_gemm_prepare(const Launcher& launcher);

/// `matrices`: those of a stack of experts that are read, for the log of launches.
void prefill_gemm(const PrefillGemm& gemm, const Launcher& launcher, int64_t matrices = 1);

}  // namespace nibble::cuda
