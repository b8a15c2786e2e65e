// Matrix products of prompt arithmetic: y [T, N] = x [T, K] W^T with W in the format of the file,
// for one weight (a linear) or a stack of experts over tokens sorted by expert. Plain pointers and
// a stream; launches only. Bit-invariant: a row of y depends on its row of x alone, never on T, on
// its place or on its neighbours (fixed steps of 64 along K, one accumulator per output).
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/ops/linear/prefill_order.h"

namespace nibble::cuda {

enum class WeightFormat : uint8_t { bf16, fp8, nvfp4 };
enum class Fp8Scales : uint8_t { tensor, row, block128 };

/// The matrix instructions of a kernel. automatic: wgmma on compute capability 9.0 (such a binary
/// must hold sm_90a code), else mma.sync. portable: mma.sync everywhere; the twin that tests force.
enum class MatrixUnit : uint8_t { automatic, portable };

/// W [N, K] in device memory, 16-byte aligned, or E of them one after another.
struct PrefillWeight {
  WeightFormat format = WeightFormat::bf16;
  const void* values =
      nullptr;  // bf16 [N, K]; e4m3 [N, K]; e2m1 [N, K/2]; both as code_words.h lays them
  const void* scales = nullptr;              // nvfp4: e4m3 [N, K/16]; fp8: F32, by fp8_scales
  const float* global = nullptr;             // nvfp4: multipliers, of expert e at e * scale_stride
  Fp8Scales fp8_scales = Fp8Scales::tensor;  // [1], [N] or [ceil(N/128), ceil(K/128)]
  int64_t scale_stride = 1;  // floats from one expert's F32 scales (or multiplier) to the next
};

enum class GemmOutput : uint8_t {
  bf16,    // y = bf16(x W^T)
  f32,     // y = x W^T
  swiglu,  // y = bf16(silu(x Wgate^T) * (x Wup^T)) in packed order; weight = gate, up = up
};

/// 128 rows or fewer of one expert.
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
  const __nv_bfloat16* packed_x = nullptr;
  int64_t x_stride = 0;  // elements between rows, a multiple of 8
  int32_t rows = 0;      // T; with tiles: an upper bound of the assignments
  int32_t n = 0;         // swiglu: a multiple of 64
  int32_t k = 0;         // a multiple of 64 (pad with zeros)
  PrefillWeight weight;
  PrefillWeight up;  // swiglu only; same format and kind of scales
  GemmOutput output = GemmOutput::bf16;
  void* y = nullptr;
  int64_t y_stride = 0;

  // Experts: tiles and their number live on the device (route_sort of grouped_gemm.h).
  const ExpertTile* tiles = nullptr;
  const int32_t* tile_count = nullptr;
  const int32_t* gather = nullptr;  // assignment -> row of x; null: the assignment itself
};

/// Device properties, read once by the caller.
struct PrefillDevice {
  int compute_major = 0;
  int multiprocessors = 0;
  int shared_bytes_max = 0;  // of one block, opt-in
  static cudaError_t read(int device, PrefillDevice* out);
};

/// Raises the shared-memory limits of all kernels. Once per device, before the first launch.
cudaError_t prefill_gemm_prepare(const PrefillDevice& device);

cudaError_t prefill_gemm(const PrefillGemm& gemm, const PrefillDevice& device, MatrixUnit unit,
                         cudaStream_t stream);

}  // namespace nibble::cuda
