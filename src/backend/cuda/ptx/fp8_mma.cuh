// The matrix instruction of a warp for E4M3 numbers (sm_89 up). Code for sm_90 and sm_100 makes it
// of conversions and the instruction for F16.
#pragma once

#include <cstdint>

namespace nibble::cuda {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
#define NIBBLE_HAS_FP8_MMA 1
#endif

/// Adds a [16, 32] times b [32, 8] to d [16, 8] in F32. Byte i of register j of lane l of a is row
/// l / 4 + 8 (j % 2), column 4 (l % 4) + i + 16 (j / 2); of b column l / 4, row
/// 4 (l % 4) + i + 16 j. In code for cards that lack it, it is never reached.
__device__ __forceinline__ void mma_e4m3(float* d, const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
#ifdef NIBBLE_HAS_FP8_MMA
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
      "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
}

}  // namespace nibble::cuda
