// The choice of the kernel of a product of prompt rows: a pure function of the matrix, the output,
// the rows and the card, so that it can be printed and tested without one.
#pragma once

#include <cstdint>
#include <string>

#include "backend/cuda/ops/linear/prefill_gemm.h"
#include "backend/cuda/runtime/architecture.h"

namespace nibble::cuda {

struct PrefillGemmPlan {
  enum class Matrix : uint8_t { mma_sync, wgmma } matrix = Matrix::mma_sync;
  Format format = Format::bf16;
  enum class Factors : uint8_t { whole, blocks } factors = Factors::whole;  // blocks: 128 x 128
  GemmOutput output = GemmOutput::bf16;
  int32_t tile_rows = 0;  // rows of W in a tile; kTileTokens are its tokens
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
/// Returns the rows of W in a tile. The matrices of a vision tower that are added to its residual
/// stream have 1,152 rows: six tiles of 192, where 256 would leave half a tile idle.
constexpr int gemm_tile_rows(GemmOutput output, PrefillGemmPlan::Matrix matrix) {
  return output == GemmOutput::add && matrix == PrefillGemmPlan::Matrix::wgmma ? 192 : 256;
}
/// Returns the bytes of a stage, which has tokens, codes of W and scales.
constexpr int gemm_stage_bytes(Format format, int tile_rows) {
  return kTileTokens * 128 + tile_rows * gemm_chunks(format) * 16 +
         (format == Format::nvfp4 ? tile_rows * 4 : 0);
}
/// Returns the stages that fit 99 KB (mma.sync) or the 227 KB of a Hopper block.
constexpr int gemm_stages(Format format, PrefillGemmPlan::Matrix matrix, int tile_rows) {
  const bool wgmma = matrix == PrefillGemmPlan::Matrix::wgmma;
  if (format != Format::bf16) return wgmma ? 6 : 3;
  return !wgmma ? 2 : tile_rows == 192 ? 5 : 4;
}
/// Returns the shared memory of a block, which has the stages and two barriers for each.
constexpr int gemm_shared_bytes(Format format, PrefillGemmPlan::Matrix matrix, int tile_rows) {
  return gemm_stages(format, matrix, tile_rows) * (gemm_stage_bytes(format, tile_rows) + 16);
}

}  // namespace nibble::cuda
