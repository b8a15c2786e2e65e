// Rows in NVFP4: one block per row, one thread for 16 columns at a time; formulas and shapes in
// quantized_rows.h. From compute capability 8.0 up. Bound by the bytes of the rows; not measured.
#include <cuda_fp8.h>

#include "backend/cuda/ops/quantized/quantized_row.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/weights/code_words.h"

namespace nibble::cuda {
namespace {

constexpr float kE2m1Max = 6.0F;
constexpr float kAmaxOverGlobal = 2688.0F;

/// Returns the code of the nearest of 0, 0.5, 1, 1.5, 2, 3, 4 and 6, ties to the even code; values
/// beyond 6 get 6. -0 is 0; what rounds to zero from below keeps its sign.
__device__ uint32_t e2m1_code_of(float x) {
  const float size = fabsf(x);
  const float index = size < 2.0F   ? rintf(size * 2.0F)
                      : size < 4.0F ? rintf(size) + 2.0F
                                    : rintf(size * 0.5F) + 4.0F;
  return static_cast<uint32_t>(fminf(index, 7.0F)) | (x < 0.0F ? 8U : 0U);
}

/// Returns G of a row whose largest magnitude is amax; what would be zero, NaN or infinite is 1.
__device__ float global_of(float amax) {
  const float global = __fmul_rn(__frcp_rn(amax), kAmaxOverGlobal);
  return isfinite(global) && global > 0.0F ? global : 1.0F;
}

/// The scale and codes of one group under the global scale G.
__device__ void quantize(const ColumnGroup& group, float global, uint8_t* scale_to,
                         uint2* codes_to) {
  constexpr uint32_t kEighth = 0x20;  // 0.125 in E4M3
  const float amax = __uint_as_float(largest(group));
  const float wanted = __fmul_rn(global, __fdiv_rn(amax, kE2m1Max));
  uint32_t scale = __nv_cvt_float_to_fp8(wanted, __NV_SATFINITE, __NV_E4M3);
  if (scale == 0) scale = kEighth;
  const float real = __fdiv_rn(__half2float(__half(__nv_cvt_fp8_to_halfraw(
                                   static_cast<__nv_fp8_storage_t>(scale), __NV_E4M3))),
                               global);
  uint32_t words[2] = {};
  if (!isnan(amax)) {
#pragma unroll
    for (int i = 0; i < kRowGroup; ++i)
      words[i / 8] |= e2m1_code_of(__fdiv_rn(group.at(i), real)) << (4 * fp4_nibble(i % 8));
  }
  *scale_to = static_cast<uint8_t>(scale);
  *codes_to = make_uint2(words[0], words[1]);
}

__global__ void __launch_bounds__(kRowThreads)
    quantize_kernel(const __grid_constant__ QuantizeRows a) {
  wait_for_inputs();
  const int item = static_cast<int>(blockIdx.x);
  const int64_t to = a.to == nullptr ? item : a.to[item];
  const int first = static_cast<int>(threadIdx.x) * kRowGroup;
  const int cols = a.weight.cols;
  const InputRow row(a, item);
  float global = 0.0F;
  if (a.global == GlobalOf::file) {
    global = input_scale_of(a.weight, a.matrix == nullptr ? 0 : a.matrix[item]);
  } else {
    uint32_t bits = 0;
    for (int c = first; c < cols; c += kRowThreads * kRowGroup)
      bits = max(bits, largest(row.read(c)));
    global = global_of(__uint_as_float(block_largest<kRowThreads>(bits)));
    if (threadIdx.x == 0) a.out.factors[to] = __frcp_rn(global);
  }
  for (int c = first; c < cols; c += kRowThreads * kRowGroup)
    quantize(row.read(c), global, a.out.scales + (to * cols + c) / kRowGroup,
             reinterpret_cast<uint2*>(a.out.codes + (to * cols + c) / 2));
}

}  // namespace

void quantize_rows(const QuantizeRows& args, const Launcher& launcher) {
  if (args.count == 0) return;
  if (args.weight.activations != ActivationFormat::nvfp4) return quantize_fp8_rows(args, launcher);
  CHECK(args.weight.cols % kRowGroup == 0 && args.x_stride % 2 == 0, args.weight.cols,
        " columns, rows at ", args.x_stride);
  CHECK(args.global == GlobalOf::file || args.out.factors != nullptr, "no place for factors");
  launch(quantize_kernel, launcher, static_cast<unsigned>(args.count), kRowThreads, 0, args);
}

}  // namespace nibble::cuda
