// One block per row; formulas and shapes in round_inputs.h. From compute capability 8.0 up. Bound
// by the bytes of the rows, read and written; how near it comes was not measured, and nothing here
// is tuned: it runs only where quality is measured.
#include <cuda_fp8.h>

#include "backend/cuda/ops/linear/input_scales.cuh"
#include "backend/cuda/ops/linear/round_inputs.h"
#include "backend/cuda/ptx/device_math.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "tensor/quant_scheme.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 256;
constexpr float kE4m3Max = 448.0F;
constexpr float kE2m1Max = 6.0F;

/// Rounds to nearest even, saturated; NaN stays.
__device__ float round_e4m3(float x) {
  const __nv_fp8_storage_t code = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, __NV_E4M3);
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
}

/// Rounds to 0, 0.5, 1, 1.5, 2, 3, 4 or 6 with a sign, to the nearest even code, saturated.
__device__ float round_e2m1(float x) {
  const float size = fabsf(x);
  const float step = size < 2.0F ? 0.5F : size < 4.0F ? 1.0F : 2.0F;
  return copysignf(fminf(rintf(size / step) * step, kE2m1Max), x);
}

/// A Row reads and writes the columns of one row, in either order of columns.
class Row {
 public:
  __device__ Row(const RoundInputs& a, int item)
      : order_(a.order),
        x_(a.x + (a.from == nullptr ? item / a.share : a.from[item]) * a.x_stride),
        out_(a.out + (a.to == nullptr ? item : a.to[item]) * a.out_stride) {}

  __device__ float read(int column) const { return from_bf16(x_[place(column)]); }
  __device__ void write(int column, float value) const { out_[place(column)] = to_bf16(value); }
  /// Returns the bits of the largest magnitude; those of NaN are larger than those of every number.
  __device__ uint32_t largest(int begin, int end, int step) const {
    uint32_t bits = 0;
    for (int c = begin; c < end; c += step) bits = max(bits, __float_as_uint(fabsf(read(c))));
    return bits;
  }

 private:
  __device__ int place(int column) const {
    return order_ == ColumnOrder::packed ? packed_position(column) : x_place(column);
  }
  ColumnOrder order_;
  const uint16_t* x_;
  uint16_t* out_;
};

/// Returns e4m3(G * amax / 6), where 0 becomes 0.125.
__device__ float nvfp4_scale(float amax, float global) {
  constexpr float kEighth = 0.125F;
  const float scale = round_e4m3(__fmul_rn(global, __fdiv_rn(amax, kE2m1Max)));
  return scale == 0.0F ? kEighth : scale;
}

/// Rounds 16 columns under the file's G.
__device__ void round_nvfp4(const Row& row, int begin, float global, InputScales scales) {
  const float amax = __uint_as_float(row.largest(begin, begin + kNvfp4Group, 1));
  float scale = nvfp4_scale(amax, global);
  if (scales == InputScales::four_over_six) {
    const auto error_under = [&](float of) {
      const float real = __fdiv_rn(of, global);
      return squared_error([&](int i) {
        const float x = row.read(begin + i);
        return __fsub_rn(__fmul_rn(round_e2m1(__fdiv_rn(x, real)), real), x);
      });
    };
    const float other = nvfp4_scale(__fmul_rn(kSixOverFour, amax), global);
    if (error_under(other) < error_under(scale)) scale = other;
  }
  const float real = __fdiv_rn(scale, global);
  for (int c = begin; c < begin + kNvfp4Group; ++c) {
    const float value = round_e2m1(__fdiv_rn(row.read(c), real)) * scale;
    row.write(c, isnan(amax) ? amax : value);
  }
}

/// Rounds columns begin, begin + step ... under a scale made here of their largest magnitude.
__device__ void round_fp8(const Row& row, int begin, int end, int step, uint32_t largest) {
  constexpr float kF32Epsilon = 0x1p-23F;  // what a row of zeros gets, as compressed-tensors has it
  float scale = __fdiv_rn(__uint_as_float(largest), kE4m3Max);
  if (scale == 0.0F) scale = kF32Epsilon;
  for (int c = begin; c < end; c += step)
    row.write(c, round_e4m3(__fdiv_rn(row.read(c), scale)) * scale);
}

__global__ void __launch_bounds__(kThreads) round_kernel(const __grid_constant__ RoundInputs a) {
  wait_for_inputs();
  const int item = static_cast<int>(blockIdx.x);
  const int thread = static_cast<int>(threadIdx.x);
  const Row row(a, item);
  const int cols = a.weight.cols;
  const int64_t matrix = a.matrix == nullptr ? 0 : a.matrix[item];
  switch (a.weight.activations) {
    case ActivationFormat::high:
      return;
    case ActivationFormat::nvfp4:
      for (int c = thread * kNvfp4Group; c < cols; c += kThreads * kNvfp4Group)
        round_nvfp4(row, c, input_scale_of(a.weight, matrix), a.weight.input_scales);
      return;
    case ActivationFormat::fp8_tensor:
      for (int c = thread; c < cols; c += kThreads)
        row.write(c, round_e4m3(__fdiv_rn(row.read(c), input_scale_of(a.weight, matrix))));
      return;
    case ActivationFormat::fp8_token:
      return round_fp8(row, thread, cols, kThreads,
                       block_largest<kThreads>(row.largest(thread, cols, kThreads)));
    case ActivationFormat::fp8_group:
      for (int c = thread * static_cast<int>(kFp8Block); c < cols; c += kThreads * kFp8Block)
        round_fp8(row, c, c + kFp8Block, 1, row.largest(c, c + kFp8Block, 1));
      return;
  }
}

}  // namespace

void round_inputs(const RoundInputs& args, const Launcher& launcher) {
  launch(round_kernel, launcher, static_cast<unsigned>(args.count), kThreads, 0, args);
}

}  // namespace nibble::cuda
