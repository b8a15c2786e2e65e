// One block per row, one thread for 16 columns at a time; formulas and shapes in fp4_rows.h. From
// compute capability 8.0 up. Bound by the bytes of the rows; not measured.
#include <cuda_fp8.h>

#include "backend/cuda/ops/fp4/fp4_rows.h"
#include "backend/cuda/ptx/device_math.cuh"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/weights/code_words.h"
#include "tensor/quant_scheme.h"

namespace nibble::cuda {
namespace {

constexpr int kThreads = 128;
constexpr int kGroup = static_cast<int>(kNvfp4Group);
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

/// Columns c and c + 4 of eight, which both orders keep in one word, low half first.
struct Group {
  uint32_t pairs[8];  // of columns 0..7, then of 8..15
  __device__ float at(int column) const {
    const uint32_t pair = pairs[column / 8 * 4 + column % 4];
    return column % 8 < 4 ? low_bf16(pair) : high_bf16(pair);
  }
};

class Row {
 public:
  __device__ Row(const QuantizeRows& a, int item)
      : order_(a.order),
        x_(a.x + (a.from == nullptr ? item / a.share : a.from[item]) * a.x_stride) {}

  /// `begin`: a multiple of 16.
  __device__ Group read(int begin) const {
    Group group;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int column = begin + i / 4 * 8 + i % 4;
      const int at = order_ == ColumnOrder::packed ? packed_position(column) : x_place(column);
      group.pairs[i] = *reinterpret_cast<const uint32_t*>(x_ + at);
    }
    return group;
  }

 private:
  ColumnOrder order_;
  const uint16_t* x_;
};

/// Returns the bits of the largest magnitude; those of NaN are larger than those of every number.
__device__ uint32_t largest(const Group& group) {
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < kGroup; ++i) bits = max(bits, __float_as_uint(fabsf(group.at(i))));
  return bits;
}

/// Returns G of a row whose largest magnitude is amax; what would be zero, NaN or infinite is 1.
__device__ float global_of(float amax) {
  const float global = __fmul_rn(__frcp_rn(amax), kAmaxOverGlobal);
  return isfinite(global) && global > 0.0F ? global : 1.0F;
}

/// The scale and codes of one group under the global scale G.
__device__ void quantize(const Group& group, float global, uint8_t* scale_to, uint2* codes_to) {
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
    for (int i = 0; i < kGroup; ++i)
      words[i / 8] |= e2m1_code_of(__fdiv_rn(group.at(i), real)) << (4 * fp4_nibble(i % 8));
  }
  *scale_to = static_cast<uint8_t>(scale);
  *codes_to = make_uint2(words[0], words[1]);
}

__global__ void __launch_bounds__(kThreads)
    quantize_kernel(const __grid_constant__ QuantizeRows a) {
  wait_for_inputs();
  const int item = static_cast<int>(blockIdx.x);
  const int64_t to = a.to == nullptr ? item : a.to[item];
  const int first = static_cast<int>(threadIdx.x) * kGroup;
  const int cols = a.weight.cols;
  const Row row(a, item);
  float global = 0.0F;
  if (a.global == GlobalOf::file) {
    global = input_scale_of(a.weight, a.matrix == nullptr ? 0 : a.matrix[item]);
  } else {
    uint32_t bits = 0;
    for (int c = first; c < cols; c += kThreads * kGroup) bits = max(bits, largest(row.read(c)));
    global = global_of(__uint_as_float(block_largest<kThreads>(bits)));
    if (threadIdx.x == 0) a.out.factors[to] = __frcp_rn(global);
  }
  for (int c = first; c < cols; c += kThreads * kGroup)
    quantize(row.read(c), global, a.out.scales + (to * cols + c) / kGroup,
             reinterpret_cast<uint2*>(a.out.codes + (to * cols + c) / 2));
}

}  // namespace

void quantize_rows(const QuantizeRows& args, const Launcher& launcher) {
  if (args.count == 0) return;
  CHECK(args.weight.cols % kGroup == 0 && args.x_stride % 2 == 0, args.weight.cols,
        " columns, rows at ", args.x_stride);
  CHECK(args.global == GlobalOf::file || args.out.factors != nullptr, "no place for factors");
  launch(quantize_kernel, launcher, static_cast<unsigned>(args.count), kThreads, 0, args);
}

}  // namespace nibble::cuda
