// Launches of the prompt GEMM. Bound: 2 T N K FLOPs at the BF16 rate of the tensor cores; reached
// on an H200: 76 % (BF16), 71 % (FP8), 66 % (NVFP4), 55 % (256 experts). docs/kernels/prefill.md.
#include "backend/cuda/ops/linear/prefill_gemm.h"
#include "backend/cuda/ops/linear/prefill_gemm_tile.cuh"

namespace nibble::cuda {
namespace {

template <WeightFormat kFormat, GemmOutput kOutput, bool kWgmma, bool kBlocks>
__global__ __launch_bounds__(GemmBlock<kFormat, kOutput, kWgmma, kBlocks>::kThreads,
                             1) void gemm_kernel(const __grid_constant__ GemmArgs args) {
#if !defined(NIBBLE_HAS_WGMMA)
  if constexpr (kWgmma) return;
#endif
  extern __shared__ __align__(1024) uint8_t shared[];
  GemmBlock<kFormat, kOutput, kWgmma, kBlocks> block(args, shared);
  block.run();
}

using Kernel = void (*)(GemmArgs);

struct Choice {
  Kernel kernel;
  int threads;
  int shared_bytes;
};

template <WeightFormat kFormat, GemmOutput kOutput, bool kWgmma, bool kBlocks>
Choice choice() {
  using Block = GemmBlock<kFormat, kOutput, kWgmma, kBlocks>;
  return {gemm_kernel<kFormat, kOutput, kWgmma, kBlocks>, Block::kThreads, Block::kSharedBytes};
}

template <WeightFormat kFormat, bool kWgmma, bool kBlocks = false>
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
Choice choose(WeightFormat format, GemmOutput output, Fp8Scales scales) {
  if (format == WeightFormat::nvfp4) return choose_output<WeightFormat::nvfp4, kWgmma>(output);
  if (format == WeightFormat::fp8 && scales == Fp8Scales::block128)
    return choose_output<WeightFormat::fp8, kWgmma, true>(output);
  if (format == WeightFormat::fp8) return choose_output<WeightFormat::fp8, kWgmma>(output);
  return choose_output<WeightFormat::bf16, kWgmma>(output);
}

/// Whether the code of this kernel that the driver picked was built for sm_90a.
bool use_wgmma(const PrefillDevice& device, MatrixUnit unit) {
  return unit == MatrixUnit::automatic && device.compute_major == 9;
}

}  // namespace

cudaError_t PrefillDevice::read(int device, PrefillDevice* out) {
  const auto get = [device](int* value, cudaDeviceAttr attribute) {
    return cudaDeviceGetAttribute(value, attribute, device);
  };
  cudaError_t error = get(&out->compute_major, cudaDevAttrComputeCapabilityMajor);
  if (error == cudaSuccess) error = get(&out->multiprocessors, cudaDevAttrMultiProcessorCount);
  if (error == cudaSuccess)
    error = get(&out->shared_bytes_max, cudaDevAttrMaxSharedMemoryPerBlockOptin);
  return error;
}

cudaError_t prefill_gemm_prepare(const PrefillDevice& device) {
  for (const auto format : {WeightFormat::bf16, WeightFormat::fp8, WeightFormat::nvfp4})
    for (const auto output : {GemmOutput::bf16, GemmOutput::f32, GemmOutput::swiglu})
      for (const int kind : {0, 1, 2, 3}) {
        const bool wgmma = kind % 2 == 1;
        const Fp8Scales scales = kind < 2 ? Fp8Scales::tensor : Fp8Scales::block128;
        if (wgmma && device.compute_major != 9) continue;
        const Choice it =
            wgmma ? choose<true>(format, output, scales) : choose<false>(format, output, scales);
        const cudaError_t error = cudaFuncSetAttribute(
            it.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, it.shared_bytes);
        if (error != cudaSuccess) return error;
      }
  return cudaSuccess;
}

cudaError_t prefill_gemm(const PrefillGemm& gemm, const PrefillDevice& device, MatrixUnit unit,
                         cudaStream_t stream) {
  if (gemm.rows == 0 || gemm.n == 0) return cudaSuccess;
  if (gemm.k % kStepColumns != 0 || gemm.x_stride % 8 != 0) return cudaErrorInvalidValue;
  const bool paired = gemm.output == GemmOutput::swiglu;
  if (paired && gemm.n % kStepColumns != 0) return cudaErrorInvalidValue;
  GemmArgs args{.gemm = gemm,
                .k_steps = gemm.k / kStepColumns,
                .row_tiles = 0,
                .token_tiles = (gemm.rows + kTileTokens - 1) / kTileTokens,
                .rows_per_tile = paired ? kTileRows / 2 : kTileRows};
  args.row_tiles = (gemm.n + args.rows_per_tile - 1) / args.rows_per_tile;
  const Choice it = use_wgmma(device, unit)
                        ? choose<true>(gemm.weight.format, gemm.output, gemm.weight.fp8_scales)
                        : choose<false>(gemm.weight.format, gemm.output, gemm.weight.fp8_scales);
  int blocks = device.multiprocessors;
  if (gemm.tiles == nullptr && args.token_tiles * args.row_tiles < blocks)
    blocks = args.token_tiles * args.row_tiles;
  it.kernel<<<blocks, it.threads, it.shared_bytes, stream>>>(args);
  return cudaGetLastError();
}

}  // namespace nibble::cuda
