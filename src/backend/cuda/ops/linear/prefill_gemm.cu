// Launches of the prompt GEMM. Bound: 2 T N K FLOPs at the BF16 rate of the tensor cores; reached
// on an H200: 76 % (BF16), 71 % (FP8), 66 % (NVFP4), 55 % (256 experts). docs/kernels/prefill.md.
#include <algorithm>

#include "backend/cuda/ops/linear/linear_shapes.h"
#include "backend/cuda/ops/linear/prefill_gemm.h"
#include "backend/cuda/ops/linear/prefill_gemm_tile.cuh"
#include "backend/cuda/runtime/launch.cuh"

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

struct Choice {
  void (*kernel)(GemmArgs);
  int threads;
  int shared_bytes;
};

template <Format kFormat, GemmOutput kOutput, bool kWgmma, bool kBlocks>
Choice choice() {
  using Block = GemmBlock<kFormat, kOutput, kWgmma, kBlocks>;
  return {gemm_kernel<kFormat, kOutput, kWgmma, kBlocks>, Block::kThreads, Block::kSharedBytes};
}

Choice choose(const PrefillGemm& gemm, const Architecture& card) {
  return with_layout(gemm.weight.format, gemm.weight.layout, [&]<Format kFormat, bool kBlocks>() {
    return with_value<GemmOutput::bf16, GemmOutput::f32, GemmOutput::swiglu>(
        gemm.output, [&]<GemmOutput kOutput>() {
          return card.has_wgmma() ? choice<kFormat, kOutput, true, kBlocks>()
                                  : choice<kFormat, kOutput, false, kBlocks>();
        });
  });
}

}  // namespace

void prefill_gemm_prepare(const Architecture& card) {
  for (const auto format : {Format::bf16, Format::fp8, Format::nvfp4})
    for (const auto output : {GemmOutput::bf16, GemmOutput::f32, GemmOutput::swiglu})
      for (const auto factors : {FactorLayout::scalar, FactorLayout::block128}) {
        const Choice it =
            choose({.weight = {.format = format, .layout = factors}, .output = output}, card);
        allow_shared(it.kernel, it.shared_bytes);
      }
}

void prefill_gemm(const PrefillGemm& gemm, const Launcher& launcher) {
  const DeviceLinear& w = gemm.weight;
  if (gemm.rows == 0 || w.rows == 0) return;
  const bool paired = gemm.output == GemmOutput::swiglu;
  CHECK(w.cols % kStepColumns == 0 && gemm.x_stride % 8 == 0 &&
            (!paired || w.rows % kStepColumns == 0),
        w.rows, " x ", w.cols, ", inputs at ", gemm.x_stride);
  GemmArgs args{.gemm = gemm,
                .k_steps = w.cols / kStepColumns,
                .row_tiles = 0,
                .token_tiles = (gemm.rows + kTileTokens - 1) / kTileTokens,
                .rows_per_tile = paired ? kTileRows / 2 : kTileRows};
  args.row_tiles = (w.rows + args.rows_per_tile - 1) / args.rows_per_tile;
  const Choice it = choose(gemm, launcher.card);
  int blocks = launcher.card.multiprocessors;
  if (gemm.tiles == nullptr) blocks = std::min(blocks, args.token_tiles * args.row_tiles);
  launch(it.kernel, launcher.in_order(), static_cast<unsigned>(blocks),
         static_cast<unsigned>(it.threads), static_cast<size_t>(it.shared_bytes), args);
}

}  // namespace nibble::cuda
