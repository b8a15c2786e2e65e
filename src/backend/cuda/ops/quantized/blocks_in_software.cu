// A thread has one number of y at a time, and a thread block 128 rows of W and one matrix.
#include "backend/cuda/ops/quantized/blocks_in_software.h"
#include "backend/cuda/ops/quantized/expert_groups.h"
#include "backend/cuda/ptx/bf16.cuh"
#include "backend/cuda/ptx/device_math.cuh"
#include "backend/cuda/ptx/fp4_mma.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/with_value.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = static_cast<int>(kScaleBlockRows);

/// The results, of which gated is y = bf16(silu(sums) * y).
enum class Stored : uint8_t { bf16, f32, add, gated };

/// One matrix and the rows of x and y that are its own.
struct Operands {
  GroupSizes sizes;
  const uint8_t *w, *w_scales, *x, *x_scales;
  void* y;
  int64_t y_stride;
  int32_t w_row_bytes, x_row_bytes;  // of scales, from one block of rows to the next
  const float* factor;
  const float* row_factors;  // null: 1
};

__device__ __forceinline__ float scale_at(const uint8_t* scales, int row_bytes, int row,
                                          int scale) {
  const int64_t block = int64_t{row / kThreads} * row_bytes + scale / 4 * kScaleBlockBytes;
  return fp4_scale_value(scales[block + row % 32 * 16 + row % kThreads / 32 * 4 + scale % 4]);
}

/// Codes of both sides have the same order within eight columns, so it does not matter.
__device__ float sum_of(const Operands& o, int n, int row) {
  const int words = o.sizes.cols / 8;
  const auto* w = reinterpret_cast<const uint32_t*>(o.w) + int64_t{n} * words;
  const auto* x = reinterpret_cast<const uint32_t*>(o.x) + int64_t{row} * words;
  float sum = 0.0F;
  for (int i = 0; i < words; i += 2) {
    int group = 0;  // halves times halves
    for (int word = i; word < i + 2; ++word) {
      const Fp4Bytes left = SoftwareFp4Arithmetic::bytes(w[word]);
      const Fp4Bytes right = SoftwareFp4Arithmetic::bytes(x[word]);
      for (int four = 0; four < 2; ++four)
        group = SoftwareFp4Arithmetic::dot(left.of[four], right.of[four], group);
    }
    sum += 0.25F * static_cast<float>(group) * scale_at(o.w_scales, o.w_row_bytes, n, i / 2) *
           scale_at(o.x_scales, o.x_row_bytes, row, i / 2);
  }
  const float row_factor = o.row_factors == nullptr ? 1.0F : o.row_factors[row];
  return sum * *o.factor * row_factor;
}

template <Stored kStored>
__device__ void multiply(const Operands& o) {
  const int n = static_cast<int>(blockIdx.y) * kThreads + static_cast<int>(threadIdx.x);
  for (int row = static_cast<int>(blockIdx.z); row < o.sizes.x_rows;
       row += static_cast<int>(gridDim.z)) {
    const float sum = sum_of(o, n, row);
    const int64_t at = row * o.y_stride + n;
    auto* wide = static_cast<float*>(o.y);
    auto* narrow = static_cast<uint16_t*>(o.y);
    if constexpr (kStored == Stored::f32) wide[at] = sum;
    if constexpr (kStored == Stored::add) wide[at] += sum;
    if constexpr (kStored == Stored::bf16) narrow[at] = to_bf16(sum);
    if constexpr (kStored == Stored::gated) narrow[at] = to_bf16(silu(sum) * from_bf16(narrow[at]));
  }
}

template <Stored kStored>
__global__ void __launch_bounds__(kThreads) linear_kernel(const Operands operands) {
  multiply<kStored>(operands);
}
template <Stored kStored>
__global__ void __launch_bounds__(kThreads)
    experts_kernel(const ExpertGroups groups, const float* factors, int64_t factor_stride) {
  const int e = static_cast<int>(blockIdx.x);
  multiply<kStored>({.sizes = groups.sizes[e],
                     .w = groups.w[e],
                     .w_scales = groups.w_scales[e],
                     .x = groups.x[e],
                     .x_scales = groups.x_scales[e],
                     .y = groups.y[e],
                     .y_stride = groups.y_stride[e],
                     .w_row_bytes = groups.w_layout[e].row_bytes,
                     .x_row_bytes = groups.x_layout[e].row_bytes,
                     .factor = factors + e * factor_stride,
                     .row_factors = nullptr});
}

constexpr unsigned kRowsAtOnce = 64;

void run(const QuantizedGemm& gemm, const DeviceLinear& w, Stored stored,
         const Launcher& launcher) {
  const bool wide = stored == Stored::f32 || stored == Stored::add;
  const unsigned row_blocks = static_cast<unsigned>(w.rows) / kThreads;
  const auto scale_bytes = static_cast<int32_t>(w.cols / kNvfp4Group * kScaleBlockRows);
  with_value<Stored::bf16, Stored::f32, Stored::add, Stored::gated>(stored, [&]<Stored kStored>() {
    if (const ExpertGroups* groups = gemm.experts.groups) {
      describe_groups(gemm, w, wide ? sizeof(float) : sizeof(uint16_t), *groups, launcher);
      const auto experts = static_cast<unsigned>(groups->experts);
      return launch(experts_kernel<kStored>, launcher, dim3(experts, row_blocks, 4), kThreads, 0,
                    *groups, w.factors, w.factor_stride);
    }
    const Operands operands{.sizes = {w.rows, gemm.rows, w.cols},
                            .w = w.values,
                            .w_scales = w.scales,
                            .x = gemm.x.codes,
                            .x_scales = gemm.x.scales,
                            .y = gemm.y,
                            .y_stride = gemm.y_stride,
                            .w_row_bytes = scale_bytes,
                            .x_row_bytes = scale_bytes,
                            .factor = w.factors,
                            .row_factors = gemm.x.factors};
    launch(linear_kernel<kStored>, launcher, dim3(1, row_blocks, kRowsAtOnce), kThreads, 0,
           operands);
  });
}

}  // namespace

void multiply_blocks(const QuantizedGemm& gemm, const Launcher& launcher) {
  switch (gemm.output) {
    case QuantizedOutput::bf16:
      return run(gemm, gemm.weight, Stored::bf16, launcher);
    case QuantizedOutput::f32:
      return run(gemm, gemm.weight, Stored::f32, launcher);
    case QuantizedOutput::add:
      return run(gemm, gemm.weight, Stored::add, launcher);
    case QuantizedOutput::swiglu:
      run(gemm, gemm.up, Stored::bf16, launcher);
      return run(gemm, gemm.weight, Stored::gated, launcher);
  }
}

}  // namespace nibble::cuda
