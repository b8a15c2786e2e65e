// The matrix instruction for numbers of 4 bits with block scales (sm_120f: compute capability 12.0
// and 12.1), and the same in software for every other card. Layouts: fp4_fragments.h. A kernel is
// compiled for one of the two types below; only the machine's instruction is fast, and only the one
// in software runs elsewhere, so that the rest of the kernel can be checked there.
#pragma once

#include "backend/cuda/ptx/device_math.cuh"
#include "backend/cuda/ptx/fp4_fragments.h"

namespace nibble::cuda {

#if (defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ == 1200) || \
    defined(__CUDA_ARCH_FEAT_SM120_ALL) || defined(__CUDA_ARCH_FEAT_SM121_ALL)
#define NIBBLE_HAS_FP4_MMA 1
#endif

/// One register of a warp that all lanes give to each other.
__device__ __forceinline__ uint32_t from_lane(uint32_t value, int lane) {
  return __shfl_sync(kAllLanes, value, lane);
}

/// Issues the instruction. In code for cards that lack it, it is never reached.
struct MachineFp4 {
  static constexpr bool kMachine = true;
  /// d [4] += the product of fragments a [4] and b0, b1 under the scales of the lanes that
  /// kLeftThread (0..1) and kRightThread (0..3) name.
  template <int kLeftThread, int kRightThread>
  static __device__ __forceinline__ void multiply(float* d, const uint32_t (&a)[4], uint32_t b0,
                                                  uint32_t b1, uint32_t left_scales,
                                                  uint32_t right_scales) {
#ifdef NIBBLE_HAS_FP4_MMA
    asm("mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col"
        ".f32.e2m1.e2m1.f32.ue4m3 "
        "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3}, %10, {0,%12}, %11, {0,%13};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "r"(left_scales),
          "r"(right_scales), "n"(kLeftThread), "n"(kRightThread));
#endif
  }
};

/// Computes fp4_bytes() and fp4_dot() with four selections of bytes for the sizes and the signs of
/// four codes each.
struct SoftwareFp4Arithmetic {
  static __device__ __forceinline__ Fp4Bytes bytes(uint32_t word) {
    Fp4Bytes out;
#pragma unroll
    for (int four = 0; four < 2; ++four) {
      const uint32_t codes = word >> (16 * four);
      const uint32_t sizes = __byte_perm(0x03020100U, 0x0C080604U, codes & 0x7777U);
      const uint32_t signs = __byte_perm(0x0000FF00U, 0, codes >> 3 & 0x1111U);
      out.of[four] = __vsub4(sizes ^ signs, signs);
    }
    return out;
  }
  static __device__ __forceinline__ int dot(uint32_t a, uint32_t b, int sum) {
    return __dp4a(static_cast<int>(a), static_cast<int>(b), sum);
  }
};

/// One function that a kernel calls: its code is that of a thousand instructions, and a tile has
/// dozens of products.
template <typename Arithmetic>
__device__ __noinline__ float4 software_fp4(float4 sums, uint4 left, uint2 right,
                                            uint32_t left_scales, uint32_t right_scales,
                                            Fp4Threads threads) {
  const uint32_t a[4] = {left.x, left.y, left.z, left.w};
  const uint32_t b[2] = {right.x, right.y};
  float d[4] = {sums.x, sums.y, sums.z, sums.w};
  const Fp4Operands operands{.left = [&](int lane, int word) { return from_lane(a[word], lane); },
                             .right = [&](int lane, int word) { return from_lane(b[word], lane); },
                             .left_scale = [&](int lane) { return from_lane(left_scales, lane); },
                             .right_scale = [&](int lane) { return from_lane(right_scales, lane); },
                             .arithmetic = Arithmetic{}};
  fp4_multiply(static_cast<int>(threadIdx.x) & 31, threads, operands, d);
  return {d[0], d[1], d[2], d[3]};
}

/// Computes the same in software, about a hundred times slower, on any card.
struct SoftwareFp4 {
  static constexpr bool kMachine = false;
  template <int kLeftThread, int kRightThread>
  static __device__ __forceinline__ void multiply(float* d, const uint32_t (&a)[4], uint32_t b0,
                                                  uint32_t b1, uint32_t left_scales,
                                                  uint32_t right_scales) {
    const float4 sums = software_fp4<SoftwareFp4Arithmetic>(
        {d[0], d[1], d[2], d[3]}, {a[0], a[1], a[2], a[3]}, {b0, b1}, left_scales, right_scales,
        {kLeftThread, kRightThread});
    d[0] = sums.x;
    d[1] = sums.y;
    d[2] = sums.z;
    d[3] = sums.w;
  }
};

}  // namespace nibble::cuda
