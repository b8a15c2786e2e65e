// The choice of the kernel of a product of prompt rows: a pure function of the matrix, the output,
// the rows and the card, so that it can be printed and tested without one.
#pragma once

#include <cstdint>
#include <string>

#include "backend/cuda/ops/linear/prefill_gemm.h"
#include "backend/cuda/runtime/architecture.h"

namespace nibble::cuda {

inline constexpr int kTileRows =
    256;  // rows of W in a tile of the GEMM; kTileTokens are its tokens

struct PrefillGemmPlan {
  enum class Matrix : uint8_t { mma_sync, wgmma } matrix = Matrix::mma_sync;
  Format format = Format::bf16;
  enum class Factors : uint8_t { whole, blocks } factors = Factors::whole;  // blocks: 128 x 128
  GemmOutput output = GemmOutput::bf16;
  int32_t stages = 0;
  int32_t threads = 0;
  int32_t shared_bytes = 0;
  int32_t blocks = 0;  // thread blocks; each takes one tile after another

  bool operator==(const PrefillGemmPlan&) const = default;
  std::string text() const;
};
PrefillGemmPlan select_prefill_gemm(const PrefillGemm& gemm, const Architecture& card);

// ---- sizes that the kernel and the choice share ----

/// Returns the 16-byte chunks of a row of W in a stage of kStepColumns columns.
constexpr int gemm_chunks(Format format) {
  return format == Format::nvfp4 ? 2 : format == Format::fp8 ? 4 : 8;
}
/// Returns the bytes of a stage, which has tokens, codes of W and scales.
constexpr int gemm_stage_bytes(Format format) {
  return kTileTokens * 128 + kTileRows * gemm_chunks(format) * 16 +
         (format == Format::nvfp4 ? kTileRows * 4 : 0);
}
/// Returns the stages that fit 99 KB (mma.sync) or the 227 KB of a Hopper block.
constexpr int gemm_stages(Format format, PrefillGemmPlan::Matrix matrix) {
  const bool wgmma = matrix == PrefillGemmPlan::Matrix::wgmma;
  return format == Format::bf16 ? (wgmma ? 4 : 2) : (wgmma ? 6 : 3);
}
/// Returns the shared memory of a block, which has the stages and two barriers for each.
constexpr int gemm_shared_bytes(Format format, PrefillGemmPlan::Matrix matrix) {
  return gemm_stages(format, matrix) * (gemm_stage_bytes(format) + 16);
}

}  // namespace nibble::cuda
