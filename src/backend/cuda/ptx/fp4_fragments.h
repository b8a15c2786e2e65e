// Places of the operands that a warp holds for the matrix instruction for numbers of 4 bits with a
// scale for every 16 of them, which computes:
//   mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col
//   d [16, 8] += (a [16, 64] * scales [16, 4]) (b [64, 8] * scales [4, 8]), a and b in E2M1, scales
//   in UE4M3, d in F32
// Pure functions for host and device. Source: the PTX manual, "Matrix Fragments for mma.m16n8k64"
// and "Block Scaling for mma.sync". The instruction itself is in fp4_mma.cuh.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#if defined(__CUDACC__)
#define NIBBLE_FP4 __host__ __device__
#else
#define NIBBLE_FP4
#endif

namespace nibble::cuda {

inline constexpr int kFp4Rows = 16;         // rows of a and d
inline constexpr int kFp4Columns = 8;       // columns of b and d
inline constexpr int kFp4Depth = 64;        // columns of a, rows of b
inline constexpr int kFp4Group = 16;        // numbers under one scale, along the depth
inline constexpr int kFp4LeftThreads = 2;   // values of thread-id-a
inline constexpr int kFp4RightThreads = 4;  // values of thread-id-b

/// An Fp4Place is where one number of 4 bits is: bits 4 nibble .. 4 nibble + 3 of a register.
struct Fp4Place {
  int lane;
  int word;  // register of the fragment: 0..3 of a, 0..1 of b
  int nibble;
};
NIBBLE_FP4 constexpr Fp4Place fp4_left_place(int row, int k) {
  return {row % 8 * 4 + k % 32 / 8, row / 8 + k / 32 * 2, k % 8};
}
NIBBLE_FP4 constexpr Fp4Place fp4_right_place(int k, int column) {
  return {column * 4 + k % 32 / 8, k / 32, k % 8};
}

/// An Fp4SumPlace is where one number of d is: F32 register `number` of four.
struct Fp4SumPlace {
  int lane;
  int number;
};
NIBBLE_FP4 constexpr Fp4SumPlace fp4_sum_place(int row, int column) {
  return {row % 8 * 4 + column / 2, row / 8 * 2 + column % 2};
}

/// An Fp4ScalePlace is where the scale of numbers 16 group .. 16 group + 15 of a row of a, or of a
/// column of b, is: a byte of the scale register of a lane. byte-id is 0, since all four bytes
/// count. thread-id-a names the pair of lanes of each four whose registers are read, thread-id-b
/// the lane; the other lanes' registers are not.
struct Fp4ScalePlace {
  int lane;
  int byte;
};
NIBBLE_FP4 constexpr Fp4ScalePlace fp4_left_scale_place(int row, int group, int thread_id) {
  return {row % 8 * 4 + thread_id * 2 + row / 8, group};
}
NIBBLE_FP4 constexpr Fp4ScalePlace fp4_right_scale_place(int group, int column, int thread_id) {
  return {column * 4 + thread_id, group};
}

/// Returns the number that a UE4M3 byte stands for; its uppermost bit does not count. 0x7F is NaN.
NIBBLE_FP4 constexpr float fp4_scale_value(uint32_t byte) {
  const uint32_t code = byte & 0x7FU;
  if (code == 0x7FU) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(code << 20) * 0x1p120F;  // exact, for subnormal codes too
}

/// Twice the numbers of eight E2M1 codes, as signed bytes: those of codes 0..3 and of 4..7.
struct Fp4Bytes {
  uint32_t of[2];
};
/// Returns twice the number that an E2M1 code stands for, an integer in -12..12.
NIBBLE_FP4 constexpr int fp4_twice(uint32_t code) {
  const uint32_t index = code & 7U;
  const int size = static_cast<int>(index < 4 ? index : index == 7 ? 12U : 2U * index - 4U);
  return (code & 8U) != 0 ? -size : size;
}
NIBBLE_FP4 constexpr Fp4Bytes fp4_bytes(uint32_t word) {
  Fp4Bytes bytes{};
  for (int i = 0; i < 8; ++i)
    bytes.of[i / 4] |= (static_cast<uint32_t>(fp4_twice(word >> (4 * i))) & 0xFFU) << (8 * (i % 4));
  return bytes;
}
/// Returns the sum of products of four signed bytes, plus `sum`.
NIBBLE_FP4 constexpr int fp4_dot(uint32_t a, uint32_t b, int sum) {
  for (int i = 0; i < 4; ++i)
    sum += static_cast<int8_t>(a >> (8 * i) & 0xFFU) * static_cast<int8_t>(b >> (8 * i) & 0xFFU);
  return sum;
}

/// The two as a type.
struct Fp4Arithmetic {
  static NIBBLE_FP4 constexpr Fp4Bytes bytes(uint32_t word) { return fp4_bytes(word); }
  static NIBBLE_FP4 constexpr int dot(uint32_t a, uint32_t b, int sum) {
    return fp4_dot(a, b, sum);
  }
};

/// These are the operands of one instruction as lane `lane` sees them: functions that return a
/// register of any lane. `Arithmetic` is Fp4Arithmetic or computes the same.
template <typename Left, typename Right, typename LeftScale, typename RightScale,
          typename Arithmetic>
struct Fp4Operands {
  Left left;               // (lane, word)
  Right right;             // (lane, word)
  LeftScale left_scale;    // (lane)
  RightScale right_scale;  // (lane)
  Arithmetic arithmetic;
};

/// The values of thread-id-a (0..1) and thread-id-b (0..3).
struct Fp4Threads {
  int left;
  int right;
};

/// Computes one lane's part of the instruction in software: adds to d[0..3], and in every lane of
/// the warp the same calls are made in the same order. A group of 16 products is an integer and
/// exact, and so is its product with both scales; the four groups are added in order, each sum
/// rounded to F32. How the machine rounds its sums the manual does not say.
template <typename Operands>
NIBBLE_FP4 constexpr void fp4_multiply(int lane, Fp4Threads threads, const Operands& from,
                                       float* d) {
  const int row = lane / 4;         // and row + 8
  const int column = lane % 4 * 2;  // and column + 1
  uint32_t scales[2][2] = {};
  for (int half = 0; half < 2; ++half) {
    scales[0][half] =
        from.left_scale(fp4_left_scale_place(row % 8 + 8 * half, 0, threads.left).lane);
    scales[1][half] = from.right_scale(fp4_right_scale_place(0, column + half, threads.right).lane);
  }
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
  for (int group = 0; group < kFp4Depth / kFp4Group; ++group) {
    int sums[4] = {};
#if defined(__CUDA_ARCH__)
#pragma unroll
#endif
    for (int part = 0; part < 2; ++part) {
      const int k = kFp4Group * group + 8 * part;
      // Registers are named by constants: those of row 0 or 8, and of column 0.
      const auto left = [&](int half) {
        return from.arithmetic.bytes(
            from.left(fp4_left_place(row % 8, k).lane, fp4_left_place(8 * half, k).word));
      };
      const auto right = [&](int which) {
        return from.arithmetic.bytes(
            from.right(fp4_right_place(k, column + which).lane, fp4_right_place(k, 0).word));
      };
      const Fp4Bytes a[2] = {left(0), left(1)};
      const Fp4Bytes b[2] = {right(0), right(1)};
      for (int i = 0; i < 4; ++i)
        for (int four = 0; four < 2; ++four)
          sums[i] = from.arithmetic.dot(a[i / 2].of[four], b[i % 2].of[four], sums[i]);
    }
    for (int i = 0; i < 4; ++i) {
      const float scale = fp4_scale_value(scales[0][i / 2] >> (8 * group)) *
                          fp4_scale_value(scales[1][i % 2] >> (8 * group));
      d[i] += static_cast<float>(sums[i]) * 0.25F * scale;
    }
  }
}

}  // namespace nibble::cuda
