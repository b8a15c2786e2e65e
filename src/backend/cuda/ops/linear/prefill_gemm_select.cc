// The conditions under which each kernel of the prompt GEMM runs.
#include "backend/cuda/ops/linear/prefill_gemm_select.h"

#include <algorithm>
#include <string_view>

#include "backend/cuda/ops/linear/linear_select.h"
#include "base/concat.h"

namespace nibble::cuda {

PrefillGemmPlan select_prefill_gemm(const PrefillGemm& gemm, const Architecture& card) {
  using Matrix = PrefillGemmPlan::Matrix;
  const DeviceLinear& w = gemm.weight;
  const Matrix matrix = card.has_wgmma() ? Matrix::wgmma : Matrix::mma_sync;
  const int32_t tile_rows = gemm_tile_rows(gemm.output, matrix);
  const int32_t rows_each = gemm.output == GemmOutput::swiglu ? tile_rows / 2 : tile_rows;
  const int64_t tiles = int64_t{ceil_div(gemm.rows, kTileTokens)} * ceil_div(w.rows, rows_each);
  const bool blocks = w.format == Format::fp8 && w.layout == FactorLayout::block128;
  PrefillGemmPlan plan{
      .matrix = matrix,
      .format = w.format,
      .factors = blocks ? PrefillGemmPlan::Factors::blocks : PrefillGemmPlan::Factors::whole,
      .output = gemm.output,
      .tile_rows = tile_rows,
      .stages = gemm_stages(w.format, matrix, tile_rows),
      .threads = matrix == Matrix::wgmma ? 2 * tile_rows : 256,
      .shared_bytes = gemm_shared_bytes(w.format, matrix, tile_rows),
      .blocks = card.multiprocessors};
  // How many tiles experts have is known on the device alone.
  if (gemm.tiles == nullptr)
    plan.blocks = static_cast<int32_t>(std::min<int64_t>(plan.blocks, tiles));
  return plan;
}

std::string PrefillGemmPlan::text() const {
  constexpr std::string_view kOutputs[] = {"bf16",        "f32",           "swiglu",
                                           "f32 of sums", "added of sums", "bias",
                                           "gelu tanh",   "gelu erf",      "add"};
  return concat(matrix == Matrix::wgmma ? "wgmma " : "mma.sync ", format_name(format),
                factors == Factors::blocks ? " in blocks" : "", " to ",
                kOutputs[static_cast<int>(output)], ", tiles of ", tile_rows, " x ", kTileTokens,
                ", ", blocks, " blocks, ", threads / 32, " warps, ", stages, " stages, ",
                shared_bytes, " bytes shared");
}

}  // namespace nibble::cuda
