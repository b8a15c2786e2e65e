// The formats of operands that a tile of quantized_tile.cuh is compiled for: how a lane makes whole
// codes of a word of W, and the instruction that multiplies them.
#pragma once

#include "backend/cuda/ptx/fp4_mma.cuh"
#include "backend/cuda/ptx/fp8_mma.cuh"
#include "backend/cuda/weights/code_words.h"
#include "backend/cuda/weights/device_weights.h"
#include "backend/cuda/weights/fp8_bytes.h"

namespace nibble::cuda {

/// These operands are in NVFP4.
template <typename Mma>
struct Nvfp4Operands {
  static constexpr Format kFormat = Format::nvfp4;
  // Code for cards with the instruction has no kernels that emulate it, and the reverse.
#if defined(NIBBLE_HAS_FP4_MMA)
  static constexpr bool kHere = Mma::kMachine;
#else
  static constexpr bool kHere = !Mma::kMachine;
#endif
  static __device__ __forceinline__ uint32_t whole(uint32_t word) { return e2m1_nibbles(word); }
  template <int kLeft, int kRight>
  static __device__ __forceinline__ void multiply(float* d, const uint32_t (&a)[4], uint32_t b0,
                                                  uint32_t b1, uint32_t left, uint32_t right) {
    Mma::template multiply<kLeft, kRight>(d, a, b0, b1, left, right);
  }
};
/// These are in FP8. Machines add such products with fewer bits than F32 has (Hopper's warpgroups:
/// about 14), so sums of 128 columns are added to those of all in F32; what scales blocks of 128
/// columns is applied there.
struct Fp8Operands {
  static constexpr Format kFormat = Format::fp8;
#if defined(NIBBLE_HAS_FP8_MMA)
  static constexpr bool kHere = true;
#else
  static constexpr bool kHere = false;
#endif
  static __device__ __forceinline__ uint32_t whole(uint32_t word) { return e4m3_bytes(word); }
  template <int, int>
  static __device__ __forceinline__ void multiply(float* d, const uint32_t (&a)[4], uint32_t b0,
                                                  uint32_t b1, uint32_t, uint32_t) {
    mma_e4m3(d, a, b0, b1);
  }
};

}  // namespace nibble::cuda
