// Rows in FP8: one block per row, one thread for 16 columns at a time; formulas and shapes in
// quantized_rows.h. From compute capability 8.0 up. Bound by the bytes of the rows; not measured.
#include <cuda_fp8.h>

#include "backend/cuda/ops/quantized/quantized_row.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/weights/fp8_bytes.h"

namespace nibble::cuda {
namespace {

constexpr float kE4m3Max = 448.0F;
constexpr int kGroupThreads = static_cast<int>(kFp8Block) / kRowGroup;  // that share a scale

/// Returns the scale of columns whose largest magnitude has these bits.
__device__ float scale_of(uint32_t largest_bits) {
  constexpr float kF32Epsilon = 0x1p-23F;  // what zeros get, as compressed-tensors has it
  const float scale = __fdiv_rn(__uint_as_float(largest_bits), kE4m3Max);
  return scale == 0.0F ? kF32Epsilon : scale;
}

/// Returns the largest bits of the eight lanes whose columns share a scale.
__device__ uint32_t largest_of_block(uint32_t bits) {
  const unsigned lanes = 0xFFU << (threadIdx.x & 24U);
#pragma unroll
  for (int step = kGroupThreads / 2; step > 0; step /= 2)
    bits = max(bits, __shfl_xor_sync(lanes, bits, step));
  return bits;
}

/// Returns the codes of the 16 columns of a group, in the order of e4m3_bytes. Adding zero makes 0
/// of -0.
__device__ uint4 codes_of(const ColumnGroup& group, float scale) {
  uint32_t words[4];
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    words[word] = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int column = word / 2 * 8 + fp8_column(word % 2 * 4 + i);
      const float value = __fdiv_rn(group.at(column), scale) + 0.0F;
      words[word] |= uint32_t{__nv_cvt_float_to_fp8(value, __NV_SATFINITE, __NV_E4M3)} << (8 * i);
    }
  }
  return {words[0], words[1], words[2], words[3]};
}

template <ActivationFormat kActivations>
__global__ void __launch_bounds__(kRowThreads)
    quantize_fp8_kernel(const __grid_constant__ QuantizeRows a) {
  wait_for_inputs();
  const int item = static_cast<int>(blockIdx.x);
  const int64_t to = a.to == nullptr ? item : a.to[item];
  const int first = static_cast<int>(threadIdx.x) * kRowGroup;
  const int cols = a.weight.cols;
  const InputRow row(a, item);
  float* factors = a.out.factors + to * a.out.factors_each;
  float scale = 0.0F;
  if constexpr (kActivations == ActivationFormat::fp8_tensor)
    scale = input_scale_of(a.weight, a.matrix == nullptr ? 0 : a.matrix[item]);
  if constexpr (kActivations == ActivationFormat::fp8_token) {
    uint32_t bits = 0;
    for (int c = first; c < cols; c += kRowThreads * kRowGroup)
      bits = max(bits, largest(row.read(c)));
    scale = scale_of(block_largest<kRowThreads>(bits));
    if (threadIdx.x == 0) factors[0] = scale;
  }
  for (int c = first; c < cols; c += kRowThreads * kRowGroup) {
    const ColumnGroup group = row.read(c);
    if constexpr (kActivations == ActivationFormat::fp8_group) {
      scale = scale_of(largest_of_block(largest(group)));
      if (threadIdx.x % kGroupThreads == 0) factors[c / kFp8Block] = scale;
    }
    *reinterpret_cast<uint4*>(a.out.codes + to * cols + c) = codes_of(group, scale);
  }
}

using Kernel = void (*)(QuantizeRows);
Kernel kernel_of(ActivationFormat activations) {
  switch (activations) {
    case ActivationFormat::fp8_token:
      return quantize_fp8_kernel<ActivationFormat::fp8_token>;
    case ActivationFormat::fp8_group:
      return quantize_fp8_kernel<ActivationFormat::fp8_group>;
    default:
      CHECK(activations == ActivationFormat::fp8_tensor, static_cast<int>(activations));
      return quantize_fp8_kernel<ActivationFormat::fp8_tensor>;
  }
}

}  // namespace

void quantize_fp8_rows(const QuantizeRows& args, const Launcher& launcher) {
  const bool made = args.weight.activations != ActivationFormat::fp8_tensor;
  CHECK(args.weight.cols % kFp8Block == 0 && args.x_stride % 2 == 0, args.weight.cols,
        " columns, rows at ", args.x_stride);
  CHECK(!made || args.out.factors != nullptr, "no place for factors");
  launch(kernel_of(args.weight.activations), launcher, static_cast<unsigned>(args.count),
         kRowThreads, 0, args);
}

}  // namespace nibble::cuda
