// The matrix instructions of a warpgroup (wgmma, sm_90a) and their fences, one function each. Names
// follow the PTX manual.
#pragma once

#include <cstdint>

#include "backend/cuda/ptx/barrier.cuh"

namespace nibble::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define NIBBLE_HAS_WGMMA 1

__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

/// After a wait for products while others run on: nothing that reads these sums moves before it.
template <int kNumbers>
__device__ __forceinline__ void wgmma_done(float (&d)[kNumbers]) {
#pragma unroll
  for (int i = 0; i < kNumbers; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

/// Rows of 128 bytes, 128-byte swizzle, K along the row; the atom (8 rows) is 1,024-byte aligned.
__device__ __forceinline__ uint64_t wgmma_descriptor(uint32_t address) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kAtomStride = uint64_t{1024 >> 4} << 32;
  constexpr uint64_t kLeading = uint64_t{1} << 16;
  return kSwizzle128 | kAtomStride | kLeading | ((address & 0x3FFFF) >> 4);
}

#define NIBBLE_F4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define NIBBLE_F16(d, i) \
  NIBBLE_F4(d, i), NIBBLE_F4(d, i + 4), NIBBLE_F4(d, i + 8), NIBBLE_F4(d, i + 12)

/// always: d is added to; if_asked: overwritten if the argument `accumulate` is 0.
enum class Accumulate : uint8_t { always, if_asked };

// `flag` is the number of the operand after the left and the right one.
#define NIBBLE_WGMMA(shape, sums, left, right, flag, ...)                                     \
  if constexpr (kAccumulate == Accumulate::always)                                            \
    asm volatile("wgmma.mma_async.sync.aligned." shape "k16.f32.bf16.bf16 {" sums "}, {" left \
                 "}, " right ", 1, 1, 1, 0;"                                                  \
                 : __VA_ARGS__                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                       \
  else                                                                                        \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " flag                                     \
                 ", 0;\nwgmma.mma_async.sync.aligned." shape "k16.f32.bf16.bf16 {" sums       \
                 "}, {" left "}, " right ", p, 1, 1, 0;\n}\n"                                 \
                 : __VA_ARGS__                                                                \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate))
#define NIBBLE_SUMS_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define NIBBLE_SUMS_32 \
  NIBBLE_SUMS_16 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define NIBBLE_SUMS_64                                                    \
  NIBBLE_SUMS_32                                                          \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48," \
  "%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"

/// Adds a [64, 16] from registers times b [16, 8 kN8] from shared memory to d [64, 8 kN8], the
/// first 4 kN8 numbers of the array.
template <int kN8, Accumulate kAccumulate, int kNumbers>
__device__ __forceinline__ void wgmma_bf16(float (&d)[kNumbers], const uint32_t (&a)[4], uint64_t b,
                                           int accumulate = 1) {
  static_assert(kN8 == 1 || kN8 == 2 || kN8 == 4 || kN8 == 8 || kN8 == 16);
  static_assert(kNumbers >= 4 * kN8);
  if constexpr (kN8 == 1) {
    NIBBLE_WGMMA("m64n8", "%0,%1,%2,%3", "%4,%5,%6,%7", "%8", "%9", NIBBLE_F4(d, 0));
  } else if constexpr (kN8 == 2) {
    NIBBLE_WGMMA("m64n16", "%0,%1,%2,%3,%4,%5,%6,%7", "%8,%9,%10,%11", "%12", "%13",
                 NIBBLE_F4(d, 0), NIBBLE_F4(d, 4));
  } else if constexpr (kN8 == 4) {
    NIBBLE_WGMMA("m64n32", NIBBLE_SUMS_16, "%16,%17,%18,%19", "%20", "%21", NIBBLE_F16(d, 0));
  } else if constexpr (kN8 == 8) {
    NIBBLE_WGMMA("m64n64", NIBBLE_SUMS_32, "%32,%33,%34,%35", "%36", "%37", NIBBLE_F16(d, 0),
                 NIBBLE_F16(d, 16));
  } else {
    NIBBLE_WGMMA("m64n128", NIBBLE_SUMS_64, "%64,%65,%66,%67", "%68", "%69", NIBBLE_F16(d, 0),
                 NIBBLE_F16(d, 16), NIBBLE_F16(d, 32), NIBBLE_F16(d, 48));
  }
}

/// Lines of 128 bytes that run along N: 64 columns a panel, `panel` bytes from one to the next.
__device__ __forceinline__ uint64_t wgmma_descriptor_columns(uint32_t address, int panel) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kAtomStride = uint64_t{1024 >> 4} << 32;  // eight lines of K
  return kSwizzle128 | kAtomStride | static_cast<uint64_t>(panel >> 4) << 16 |
         ((address & 0x3FFFF) >> 4);
}

/// Adds a [64, 16] times b [16, 64], both from shared memory with K along the lines, to d [64, 64].
__device__ __forceinline__ void wgmma_bf16_shared(float (&d)[32], uint64_t a, uint64_t b,
                                                  int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NIBBLE_SUMS_32
      "}, %32, %33, p, 1, 1, 0, 0;\n}\n"
      : NIBBLE_F16(d, 0), NIBBLE_F16(d, 16)
      : "l"(a), "l"(b), "r"(accumulate));
}

/// Adds a [64, 16] from registers times b [16, 256] from shared memory, with N along the lines, to
/// d [64, 256].
__device__ __forceinline__ void wgmma_bf16_columns(float (&d)[128], const uint32_t (&a)[4],
                                                   uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" NIBBLE_SUMS_64
               ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
               "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
               "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
               "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127},"
               "{%128,%129,%130,%131}, %132, 1, 1, 1, 1;\n"
               : NIBBLE_F16(d, 0), NIBBLE_F16(d, 16), NIBBLE_F16(d, 32), NIBBLE_F16(d, 48),
                 NIBBLE_F16(d, 64), NIBBLE_F16(d, 80), NIBBLE_F16(d, 96), NIBBLE_F16(d, 112)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/// The same for b [16, 80], [16, 64] and [16, 32], whose last panel may be in use in part.
__device__ __forceinline__ void wgmma_bf16_columns(float (&d)[40], const uint32_t (&a)[4],
                                                   uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 {" NIBBLE_SUMS_32
               ",%32,%33,%34,%35,%36,%37,%38,%39},{%40,%41,%42,%43}, %44, 1, 1, 1, 1;\n"
               : NIBBLE_F16(d, 0), NIBBLE_F16(d, 16), NIBBLE_F4(d, 32), NIBBLE_F4(d, 36)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void wgmma_bf16_columns(float (&d)[32], const uint32_t (&a)[4],
                                                   uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" NIBBLE_SUMS_32
               "},{%32,%33,%34,%35}, %36, 1, 1, 1, 1;\n"
               : NIBBLE_F16(d, 0), NIBBLE_F16(d, 16)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void wgmma_bf16_columns(float (&d)[16], const uint32_t (&a)[4],
                                                   uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {" NIBBLE_SUMS_16
               "},{%16,%17,%18,%19}, %20, 1, 1, 1, 1;\n"
               : NIBBLE_F16(d, 0)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace nibble::cuda
