// The instruction of fp4_mma.cuh alone, on fragments: by which a card shows that its instruction is
// the one that kernels were checked with. One warp for each set of fragments. Oracle: fp4_multiply
// on the host, bit for bit in software (bench/cuda/fp4_check.cu); the machine's own where all sums
// are exact.
#pragma once

#include <cstdint>

#include "backend/cuda/runtime/launcher.h"

namespace nibble::cuda {

/// The registers of a warp before the instruction.
struct Fp4Warp {
  uint32_t left[4][32];  // [register][lane]
  uint32_t right[2][32];
  uint32_t left_scale[32];
  uint32_t right_scale[32];
  float sums[4][32];
};
/// Replaces warps[i].sums of `count` warps by what the instruction makes of them, with both values
/// of thread-id-a and all four of thread-id-b in turn: warp i has number i % 8 = 4 a + b. CHECKs
/// that launcher.card.fp4 is not off.
void multiply_fragments(Fp4Warp* warps, int32_t count, const Launcher& launcher);

}  // namespace nibble::cuda
