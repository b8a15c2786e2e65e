// The prompt GEMM over rows of two parts: the steps along K go over the matrix twice, first with
// the high parts of the rows, then with the low ones, and add up in the same sums.
// Bound: FLOPs of the tensor cores, 4 R N K, twice those of one BF16 product.
#include "backend/cuda/ops/gradient/gradient_product.h"
#include "backend/cuda/ops/linear/linear_select.h"
#include "backend/cuda/ops/linear/prefill_gemm_tile.cuh"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

template <GemmOutput kOutput, bool kWgmma>
__global__ __launch_bounds__(GemmBlock<Format::bf16, kOutput, kWgmma, false>::kThreads,
                             1) void product_kernel(const __grid_constant__ GemmArgs args) {
#if !defined(NIBBLE_HAS_WGMMA)
  if constexpr (kWgmma) return;
#endif
  extern __shared__ __align__(1024) uint8_t shared[];
  GemmBlock<Format::bf16, kOutput, kWgmma, false> block(args, shared);
  block.run();
}

using ProductKernel = void (*)(GemmArgs);
ProductKernel kernel_of(const PrefillGemmPlan& plan) {
  return with_value<GemmOutput::f32_of_sums, GemmOutput::added_of_sums>(
      plan.output, [&]<GemmOutput kOutput>() -> ProductKernel {
        return plan.matrix == PrefillGemmPlan::Matrix::wgmma ? product_kernel<kOutput, true>
                                                             : product_kernel<kOutput, false>;
      });
}

}  // namespace

void gradient_product_prepare(const Launcher& launcher) {
  for (const auto output : {GemmOutput::f32_of_sums, GemmOutput::added_of_sums}) {
    const PrefillGemmPlan plan = select_prefill_gemm({.output = output}, launcher.card);
    launcher.device->allow_shared(kernel_of(plan), plan.shared_bytes);
  }
}

void gradient_product(const GradientProduct& product, const Launcher& launcher) {
  const DeviceLinear& w = product.weight;
  if (product.rows == 0 || w.rows == 0) return;
  CHECK(w.format == Format::bf16 && w.cols == product.x.cols && w.cols % kStepColumns == 0,
        "rows of ", product.x.cols, " columns for a matrix of ", w.rows, " x ", w.cols);
  const PrefillGemm gemm{.packed_x = product.x.values,
                         .x_stride = 2 * int64_t{product.x.cols},
                         .rows = product.rows,
                         .weight = w,
                         .output = product.result == ProductResult::added
                                       ? GemmOutput::added_of_sums
                                       : GemmOutput::f32_of_sums,
                         .y = product.out,
                         .y_stride = w.rows,
                         .tiles = product.tiles,
                         .tile_count = product.tile_count,
                         .gather = product.gather};
  const PrefillGemmPlan plan = select_prefill_gemm(gemm, launcher.card);
  const GemmArgs args{.gemm = gemm,
                      .k_steps = 2 * (w.cols / kStepColumns),
                      .row_tiles = (w.rows + plan.tile_rows - 1) / plan.tile_rows,
                      .token_tiles = (product.rows + kTileTokens - 1) / kTileTokens,
                      .rows_per_tile = plan.tile_rows};
  launch(kernel_of(plan), launcher.in_order(), static_cast<unsigned>(plan.blocks),
         static_cast<unsigned>(plan.threads), static_cast<size_t>(plan.shared_bytes), args);
}

}  // namespace nibble::cuda
