// A row of BF16 inputs becomes codes by a block of threads, 16 columns for a thread at a time, in
// either order of columns; formulas and shapes in quantized_rows.h. A kernel that makes the row
// ends with this too.
#pragma once

#include <cuda_fp8.h>

#include "backend/cuda/ops/linear/input_scales.cuh"
#include "backend/cuda/ops/quantized/quantized_rows.h"
#include "backend/cuda/ptx/device_math.cuh"
#include "backend/cuda/weights/code_words.h"
#include "backend/cuda/weights/fp8_bytes.h"

namespace nibble::cuda {

inline constexpr int kRowGroup = static_cast<int>(kNvfp4Group);

/// Columns c and c + 4 of eight, which both orders keep in one word, low half first.
struct ColumnGroup {
  uint32_t pairs[8];  // of columns 0..7, then of 8..15
  __device__ float at(int column) const {
    const uint32_t pair = pairs[column / 8 * 4 + column % 4];
    return column % 8 < 4 ? low_bf16(pair) : high_bf16(pair);
  }
};

class InputRow {
 public:
  __device__ InputRow(const QuantizeRows& a, int item)
      : order_(a.order),
        x_(a.x + (a.from == nullptr ? item / a.share : a.from[item]) * a.x_stride) {}

  /// `begin`: a multiple of 16.
  __device__ ColumnGroup read(int begin) const {
    ColumnGroup group;
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
__device__ inline uint32_t largest(const ColumnGroup& group) {
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < kRowGroup; ++i) bits = max(bits, __float_as_uint(fabsf(group.at(i))));
  return bits;
}

/// Returns the code of the nearest of 0, 0.5, 1, 1.5, 2, 3, 4 and 6, ties to the even code; values
/// beyond 6 get 6. -0 is 0; what rounds to zero from below keeps its sign.
__device__ inline uint32_t e2m1_code_of(float x) {
  const float size = fabsf(x);
  const float index = size < 2.0F   ? rintf(size * 2.0F)
                      : size < 4.0F ? rintf(size) + 2.0F
                                    : rintf(size * 0.5F) + 4.0F;
  return static_cast<uint32_t>(fminf(index, 7.0F)) | (x < 0.0F ? 8U : 0U);
}

/// Returns the number of a code.
__device__ inline float e2m1_number(uint32_t code) {
  const auto index = static_cast<float>(code & 7U);
  const float size = index < 5.0F ? index * 0.5F : index < 7.0F ? index - 2.0F : 6.0F;
  return (code & 8U) != 0 ? -size : size;
}

/// Returns G of a row whose largest magnitude is amax; what would be zero, NaN or infinite is 1.
__device__ inline float global_of(float amax) {
  constexpr float kAmaxOverGlobal = 2688.0F;
  const float global = __fmul_rn(__frcp_rn(amax), kAmaxOverGlobal);
  return isfinite(global) && global > 0.0F ? global : 1.0F;
}

inline constexpr uint8_t kZeroScale = 0x20;  // of zeros: 0.125 in E4M3

/// The scale of a group, and what it divides by.
struct Fp4Scale {
  uint32_t code;
  float real;
};
/// Returns those of the largest magnitude `amax` under the global scale G.
__device__ inline Fp4Scale fp4_scale_of(float amax, float global) {
  constexpr float kE2m1Max = 6.0F;
  const float wanted = __fmul_rn(global, __fdiv_rn(amax, kE2m1Max));
  uint32_t code = __nv_cvt_float_to_fp8(wanted, __NV_SATFINITE, __NV_E4M3);
  if (code == 0) code = kZeroScale;
  const auto value =
      __half(__nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(code), __NV_E4M3));
  return {code, __fdiv_rn(__half2float(value), global)};
}
__device__ inline float fp4_error(const ColumnGroup& group, float real) {
  return squared_error([&](int i) {
    const uint32_t code = e2m1_code_of(__fdiv_rn(group.at(i), real));
    return __fsub_rn(__fmul_rn(e2m1_number(code), real), group.at(i));
  });
}

/// The scale and codes of one group under the global scale G.
__device__ inline void make_fp4_group(const ColumnGroup& group, float global, InputScales scales,
                                      uint8_t* scale_to, uint2* codes_to) {
  const float amax = __uint_as_float(largest(group));
  Fp4Scale scale = fp4_scale_of(amax, global);
  if (scales == InputScales::four_over_six) {
    const Fp4Scale other = fp4_scale_of(__fmul_rn(kSixOverFour, amax), global);
    if (fp4_error(group, other.real) < fp4_error(group, scale.real)) scale = other;
  }
  uint32_t words[2] = {};
  if (!isnan(amax)) {
#pragma unroll
    for (int i = 0; i < kRowGroup; ++i)
      words[i / 8] |= e2m1_code_of(__fdiv_rn(group.at(i), scale.real)) << (4 * fp4_nibble(i % 8));
  }
  *scale_to = static_cast<uint8_t>(scale.code);
  *codes_to = make_uint2(words[0], words[1]);
}

inline constexpr int kGroupThreads = static_cast<int>(kFp8Block) / kRowGroup;  // that share a scale

/// Returns the FP8 scale of columns whose largest magnitude has these bits.
__device__ inline float fp8_scale_of(uint32_t largest_bits) {
  constexpr float kE4m3Max = 448.0F;
  constexpr float kF32Epsilon = 0x1p-23F;  // what zeros get, as compressed-tensors has it
  const float scale = __fdiv_rn(__uint_as_float(largest_bits), kE4m3Max);
  return scale == 0.0F ? kF32Epsilon : scale;
}

/// Returns the largest bits of the eight lanes whose columns share a scale.
__device__ inline uint32_t largest_of_block(uint32_t bits) {
  const unsigned lanes = 0xFFU << (threadIdx.x & 24U);
#pragma unroll
  for (int step = kGroupThreads / 2; step > 0; step /= 2)
    bits = max(bits, __shfl_xor_sync(lanes, bits, step));
  return bits;
}

/// Returns the FP8 codes of the 16 columns of a group, in the order of e4m3_bytes. Adding zero
/// makes 0 of -0.
__device__ inline uint4 fp8_codes_of(const ColumnGroup& group, float scale) {
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

/// Returns the place of a scale of row `to`, an input of matrix `matrix`.
__device__ __forceinline__ int64_t fp4_scale_at(const QuantizedInput& out, int64_t to,
                                                int64_t matrix, int scale, int scales) {
  if (out.scale_order == ScaleOrder::rows) return to * scales + scale;
  return scale_place(to + (out.scale_shift == nullptr ? 0 : out.scale_shift[matrix]), scale,
                     scales);
}

/// Makes row a.to[item], or row `item`, of a.out in NVFP4 by a block of
/// kThreads threads.
template <int kThreads>
__device__ __forceinline__ void make_fp4_row(const QuantizeRows& a, int item) {
  const int64_t to = a.to == nullptr ? item : a.to[item];
  if (to < 0) return;
  const int first = static_cast<int>(threadIdx.x) * kRowGroup;
  const int cols = a.weight.cols;
  const int64_t matrix = a.matrix == nullptr ? 0 : a.matrix[item];
  const InputRow row(a, item);
  float global = 0.0F;
  if (a.global == GlobalOf::file) {
    global = input_scale_of(a.weight, matrix);
  } else {
    uint32_t bits = 0;
    for (int c = first; c < cols; c += kThreads * kRowGroup) bits = max(bits, largest(row.read(c)));
    global = global_of(__uint_as_float(block_largest<kThreads>(bits)));
    if (threadIdx.x == 0) a.out.factors[to] = __frcp_rn(global);
  }
  for (int c = first; c < cols; c += kThreads * kRowGroup)
    make_fp4_group(row.read(c), global, a.weight.input_scales,
                   a.out.scales + fp4_scale_at(a.out, to, matrix, c / kRowGroup, cols / kRowGroup),
                   reinterpret_cast<uint2*>(a.out.codes + (to * cols + c) / 2));
}

/// The same in FP8.
template <int kThreads, ActivationFormat kInputs>
__device__ __forceinline__ void make_fp8_row(const QuantizeRows& a, int item) {
  const int64_t to = a.to == nullptr ? item : a.to[item];
  const int first = static_cast<int>(threadIdx.x) * kRowGroup;
  const int cols = a.weight.cols;
  const InputRow row(a, item);
  float* factors = a.out.factors + to * a.out.factors_each;
  float scale = 0.0F;
  if constexpr (kInputs == ActivationFormat::fp8_tensor)
    scale = input_scale_of(a.weight, a.matrix == nullptr ? 0 : a.matrix[item]);
  if constexpr (kInputs == ActivationFormat::fp8_token) {
    uint32_t bits = 0;
    for (int c = first; c < cols; c += kThreads * kRowGroup) bits = max(bits, largest(row.read(c)));
    scale = fp8_scale_of(block_largest<kThreads>(bits));
    if (threadIdx.x == 0) factors[0] = scale;
  }
  for (int c = first; c < cols; c += kThreads * kRowGroup) {
    const ColumnGroup group = row.read(c);
    if constexpr (kInputs == ActivationFormat::fp8_group) {
      scale = fp8_scale_of(largest_of_block(largest(group)));
      if (threadIdx.x % kGroupThreads == 0) factors[c / kFp8Block] = scale;
    }
    *reinterpret_cast<uint4*>(a.out.codes + to * cols + c) = fp8_codes_of(group, scale);
  }
}

template <int kThreads, ActivationFormat kInputs>
__device__ __forceinline__ void make_row(const QuantizeRows& a, int item) {
  if constexpr (kInputs == ActivationFormat::nvfp4)
    make_fp4_row<kThreads>(a, item);
  else
    make_fp8_row<kThreads, kInputs>(a, item);
}

}  // namespace nibble::cuda
