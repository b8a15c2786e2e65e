// Launches of the prompt GEMM. Bound: 2 T N K FLOPs at the BF16 rate of the tensor cores; reached
// on an H200: 76 % (BF16), 71 % (FP8), 66 % (NVFP4), 55 % (256 experts). docs/kernels/prefill.md.
#include <algorithm>

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

template <Format kFormat, bool kWgmma, bool kBlocks = false>
Choice choose_output(GemmOutput output) {
  switch (output) {
    case GemmOutput::f32:
      return choice<kFormat, GemmOutput::f32, kWgmma, kBlocks>();
    case GemmOutput::swiglu:
      return choice<kFormat, GemmOutput::swiglu, kWgmma, kBlocks>();
    default:
      return choice<kFormat, GemmOutput::bf16, kWgmma, kBlocks>();
  }
}

template <bool kWgmma>
Choice choose(Format format, GemmOutput output, FactorLayout factors) {
  if (format == Format::nvfp4) return choose_output<Format::nvfp4, kWgmma>(output);
  if (format == Format::fp8 && factors == FactorLayout::block128)
    return choose_output<Format::fp8, kWgmma, true>(output);
  if (format == Format::fp8) return choose_output<Format::fp8, kWgmma>(output);
  return choose_output<Format::bf16, kWgmma>(output);
}

Choice choose(const PrefillGemm& gemm, const Architecture& card) {
  const DeviceLinear& w = gemm.weight;
  return card.has_wgmma() ? choose<true>(w.format, gemm.output, w.layout)
                          : choose<false>(w.format, gemm.output, w.layout);
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
