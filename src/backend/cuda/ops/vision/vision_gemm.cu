// The prompt GEMM with the epilogues of the vision tower, for plain BF16 matrices.
#include "backend/cuda/ops/linear/linear_select.h"
#include "backend/cuda/ops/linear/prefill_gemm_tile.cuh"
#include "backend/cuda/ops/vision/vision.h"
#include "backend/cuda/runtime/launch.cuh"

namespace nibble::cuda {
namespace {

template <GemmOutput kOutput, bool kWgmma>
__global__ __launch_bounds__(GemmBlock<Format::bf16, kOutput, kWgmma, false>::kThreads,
                             1) void gemm_kernel(const __grid_constant__ GemmArgs args) {
#if !defined(NIBBLE_HAS_WGMMA)
  if constexpr (kWgmma) return;
#endif
  extern __shared__ __align__(1024) uint8_t shared[];
  GemmBlock<Format::bf16, kOutput, kWgmma, false> block(args, shared);
  block.run();
}

using GemmKernel = void (*)(GemmArgs);
GemmKernel kernel_of(const PrefillGemmPlan& plan) {
  return with_value<GemmOutput::bias, GemmOutput::gelu_tanh, GemmOutput::gelu_erf, GemmOutput::add>(
      plan.output, [&]<GemmOutput kOutput>() -> GemmKernel {
        return plan.matrix == PrefillGemmPlan::Matrix::wgmma ? gemm_kernel<kOutput, true>
                                                             : gemm_kernel<kOutput, false>;
      });
}

}  // namespace

void prepare_vision_gemm(const Launcher& launcher) {
  for (const auto output :
       {GemmOutput::bias, GemmOutput::gelu_tanh, GemmOutput::gelu_erf, GemmOutput::add}) {
    const PrefillGemmPlan plan = select_prefill_gemm({.output = output}, launcher.card);
    launcher.device->allow_shared(kernel_of(plan), plan.shared_bytes);
  }
}

void vision_gemm(const PrefillGemm& gemm, const Launcher& launcher) {
  const DeviceLinear& w = gemm.weight;
  if (gemm.rows == 0) return;
  CHECK(w.format == Format::bf16 && w.cols % kStepColumns == 0 && gemm.x_stride % 8 == 0, w.rows,
        " x ", w.cols, ", inputs at ", gemm.x_stride);
  const PrefillGemmPlan plan = select_prefill_gemm(gemm, launcher.card);
  const GemmArgs args{.gemm = gemm,
                      .k_steps = w.cols / kStepColumns,
                      .row_tiles = (w.rows + plan.tile_rows - 1) / plan.tile_rows,
                      .token_tiles = (gemm.rows + kTileTokens - 1) / kTileTokens,
                      .rows_per_tile = plan.tile_rows};
  launch(kernel_of(plan), launcher.in_order(), static_cast<unsigned>(plan.blocks),
         static_cast<unsigned>(plan.threads), static_cast<size_t>(plan.shared_bytes), args);
}

}  // namespace nibble::cuda
