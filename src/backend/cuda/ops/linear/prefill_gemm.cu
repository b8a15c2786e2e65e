// This file launches the prompt GEMM. Bound: 2 T N K FLOPs at the BF16 rate of the tensor cores; an
// H200 reaches 76 % (BF16), 71 % (FP8), 66 % (NVFP4), 55 % (256 experts) of it
// (docs/kernels/prefill.md).
#include "backend/cuda/ops/linear/linear_select.h"
#include "backend/cuda/ops/linear/prefill_gemm_tile.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/launch_log.h"

namespace nibble::cuda {
namespace {

template <Format kFormat, GemmOutput kOutput, bool kWgmma, bool kBlocks>
__global__ __launch_bounds__(GemmBlock<kFormat, kOutput, kWgmma, kBlocks>::kThreads,
                             1) void gemm_kernel(const __grid_constant__ GemmArgs args) {
#if !defined(NIBBLE_HAS_WGMMA)
  if constexpr (kWgmma) return;
#endif
  extern __shared__ __align__(1024) uint8_t shared[];
  GemmBlock<kFormat, kOutput, kWgmma, kBlocks> block(args, shared);
  block.run();
}

using GemmKernel = void (*)(GemmArgs);

GemmKernel kernel_of(const PrefillGemmPlan& plan) {
  const auto layout = plan.factors == PrefillGemmPlan::Factors::blocks ? FactorLayout::block128
                                                                       : FactorLayout::scalar;
  return with_layout(plan.format, layout, [&]<Format kFormat, bool kBlocks>() {
    return with_value<GemmOutput::bf16, GemmOutput::f32, GemmOutput::swiglu>(
        plan.output, [&]<GemmOutput kOutput>() {
          return plan.matrix == PrefillGemmPlan::Matrix::wgmma
                     ? gemm_kernel<kFormat, kOutput, true, kBlocks>
                     : gemm_kernel<kFormat, kOutput, false, kBlocks>;
        });
  });
}

/// Returns the bytes of the matrices, each read once.
int64_t bytes_of(const PrefillGemm& gemm, int64_t matrices) {
  return weight_bytes(gemm.weight, matrices) +
         (gemm.output == GemmOutput::swiglu ? weight_bytes(gemm.up, matrices) : 0);
}

}  // namespace

void prefill_gemm_prepare(const Launcher& launcher) {
  for (const auto format : {Format::bf16, Format::fp8, Format::nvfp4})
    for (const auto output : {GemmOutput::bf16, GemmOutput::f32, GemmOutput::swiglu})
      for (const auto factors : {FactorLayout::scalar, FactorLayout::block128}) {
        const PrefillGemmPlan plan = select_prefill_gemm(
            {.weight = {.format = format, .layout = factors}, .output = output}, launcher.card);
        launcher.device->allow_shared(kernel_of(plan), plan.shared_bytes);
      }
}

void prefill_gemm(const PrefillGemm& gemm, const Launcher& launcher, int64_t matrices) {
  const DeviceLinear& w = gemm.weight;
  if (gemm.rows == 0 || w.rows == 0) return;
  const bool paired = gemm.output == GemmOutput::swiglu;
  CHECK(w.cols % kStepColumns == 0 && gemm.x_stride % 8 == 0 &&
            (!paired || w.rows % kStepColumns == 0),
        w.rows, " x ", w.cols, ", inputs at ", gemm.x_stride);
  const PrefillGemmPlan plan = select_prefill_gemm(gemm, launcher.card);
  const int32_t rows_each = paired ? plan.tile_rows / 2 : plan.tile_rows;
  const GemmArgs args{.gemm = gemm,
                      .k_steps = w.cols / kStepColumns,
                      .row_tiles = (w.rows + rows_each - 1) / rows_each,
                      .token_tiles = (gemm.rows + kTileTokens - 1) / kTileTokens,
                      .rows_per_tile = rows_each};
  log_launch(launcher, plan, {.weights = bytes_of(gemm, matrices)});
  launch(kernel_of(plan), launcher.in_order(), static_cast<unsigned>(plan.blocks),
         static_cast<unsigned>(plan.threads), static_cast<size_t>(plan.shared_bytes), args);
}

}  // namespace nibble::cuda
