// The pieces linear_stream.cuh is made of: copies and barriers across a cluster, wgmma with 64 rows
// of weights from registers, and how 16 bytes of a weight row become its operands.
//
// K may be in any order as long as weights and inputs share it. Lane t of four reads 16 bytes of a
// row at a time; the 16 inputs of one wgmma step are four of each of the four lanes' columns, so
// that a code is widened where it lies.
#pragma once

#include "backend/cuda/ops/linear/resident.cuh"
#include "backend/cuda/ptx/wgmma_ptx.cuh"

namespace nibble::cuda {

/// The first of lane group g's two rows of 16; the second is 8 further. Groups beside each other
/// are four rows apart: their 64 bytes lie in different banks.
__device__ __forceinline__ int stream_row(int g) { return (g >> 1) + 4 * (g & 1); }

/// First of the 8 columns that lane t's inputs come from: half `half` (0, 1) of its share of the
/// 64 columns `line`.
template <Format kFormat>
__device__ __forceinline__ int line_column(int line, int t, int half) {
  if constexpr (kFormat == Format::nvfp4)
    return 128 * (line / 2) + 32 * t + 16 * (line % 2) + 8 * half;
  return 64 * line + 16 * t + 8 * half;
}
/// Operands of kSteps wgmma steps that 16 bytes of two rows hold, or a half of them (`part`).
template <Format kFormat>
struct Fragments {
  static constexpr int kSteps = 4;
  static constexpr int kParts = kFormat == Format::nvfp4 ? 2 : 1;  // of 16 bytes
  uint32_t a[kSteps][4];

  /// scales: of both rows for these columns (nvfp4).
  __device__ __forceinline__ void widen(const uint4& low, const uint4& high, int part,
                                        const uint32_t (&scales)[2]) {
    if constexpr (kFormat == Format::fp8) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const E4m3Pairs first = e4m3_pairs(word_of(low, j));
        const E4m3Pairs second = e4m3_pairs(word_of(high, j));
        a[j][0] = first.of[0], a[j][1] = second.of[0];
        a[j][2] = first.of[1], a[j][3] = second.of[1];
      }
    } else {
#pragma unroll
      for (int row = 0; row < 2; ++row)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          uint32_t pairs[4];
          widen_e2m1(word_of(row == 0 ? low : high, 2 * part + j), scales[row], pairs);
          a[2 * j][row] = pairs[0];
          a[2 * j][2 + row] = pairs[1];
          a[2 * j + 1][row] = pairs[2];
          a[2 * j + 1][2 + row] = pairs[3];
        }
    }
  }
};

#ifdef NIBBLE_HAS_WGMMA

// ---- copies and barriers ----

/// 16 bytes from device memory, past the L1 cache.
__device__ __forceinline__ void copy_weights_16(uint32_t to, const uint8_t* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}
/// The barrier counts this thread in once all its copies so far have landed.
__device__ __forceinline__ void arrive_copied(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}
/// The address of `own` in block `rank` of the cluster.
__device__ __forceinline__ uint32_t of_rank(uint32_t own, int rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(rank));
  return there;
}
/// Stores in another block's shared memory, counted by its `barrier` as 16 bytes. What the barrier
/// counts is visible to who waits for it, so that nothing else need be ordered.
__device__ __forceinline__ void store_there(uint32_t to, const float4& v, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, "
      "[%5];" ::"r"(to),
      "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void arrive_there(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void expect_bytes(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void sync_multipliers() {
  asm volatile("bar.sync 1, %0;" ::"n"(kStreamGroups * 128) : "memory");
}

// ---- wgmma ----

/// d [64, 8 kN8] += a [64, 16] from registers, b [16, 8 kN8] from shared memory.
template <int kN8>
__device__ __forceinline__ void multiply_rows(float (&d)[4 * kN8], const uint32_t (&a)[4],
                                              uint64_t b) {
  static_assert(kN8 == 1 || kN8 == 2 || kN8 == 4 || kN8 == 8);
#define NIBBLE_OPERANDS "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
  if constexpr (kN8 == 1) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3},"
        "{%4,%5,%6,%7}, %8, 1, 1, 1, 0;"
        : NIBBLE_F4(d, 0)
        : NIBBLE_OPERANDS);
  } else if constexpr (kN8 == 2) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7},"
        "{%8,%9,%10,%11}, %12, 1, 1, 1, 0;"
        : NIBBLE_F4(d, 0), NIBBLE_F4(d, 4)
        : NIBBLE_OPERANDS);
  } else if constexpr (kN8 == 4) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15},"
        "{%16,%17,%18,%19}, %20, 1, 1, 1, 0;"
        : NIBBLE_F16(d, 0)
        : NIBBLE_OPERANDS);
  } else {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
        "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
        "{%32,%33,%34,%35}, %36, 1, 1, 1, 0;"
        : NIBBLE_F16(d, 0), NIBBLE_F16(d, 16)
        : NIBBLE_OPERANDS);
  }
#undef NIBBLE_OPERANDS
}

#endif  // NIBBLE_HAS_WGMMA

}  // namespace nibble::cuda
