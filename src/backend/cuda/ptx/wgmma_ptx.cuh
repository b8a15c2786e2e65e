// The machine instructions of compute capability 9.0, one function each: barriers in shared memory
// that count copies, and wgmma (sm_90a). Names follow the PTX manual.
#pragma once

#include <cstdint>

#include "backend/cuda/ptx/cluster.cuh"

namespace nibble::cuda {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define NIBBLE_HAS_WGMMA 1

__device__ __forceinline__ void barrier_init(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Returns once the phase of this parity is complete (of a fresh barrier, parity 1 is).
__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred p;\nwait_%=:\n"
      "mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n"
      "@!p bra wait_%=;\n}\n" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
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

/// d [64, 8 * kN8] (+)= a [64, 16] from registers, b [16, 8 * kN8] from shared memory.
/// accumulate 0: d is overwritten.
template <int kN8>
__device__ __forceinline__ void wgmma_bf16(float (&d)[64], const uint32_t (&a)[4], uint64_t b,
                                           int accumulate);

template <>
__device__ __forceinline__ void wgmma_bf16<16>(float (&d)[64], const uint32_t (&a)[4], uint64_t b,
                                               int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63},"
      "{%64,%65,%66,%67}, %68, p, 1, 1, 0;\n}\n"
      : NIBBLE_F16(d, 0), NIBBLE_F16(d, 16), NIBBLE_F16(d, 32), NIBBLE_F16(d, 48)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

template <>
__device__ __forceinline__ void wgmma_bf16<4>(float (&d)[64], const uint32_t (&a)[4], uint64_t b,
                                              int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %21, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15},"
      "{%16,%17,%18,%19}, %20, p, 1, 1, 0;\n}\n"
      : NIBBLE_F16(d, 0)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate));
}

/// Lines of 128 bytes that run along N: 64 columns a panel, `panel` bytes from one to the next.
__device__ __forceinline__ uint64_t wgmma_descriptor_columns(uint32_t address, int panel) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
  constexpr uint64_t kAtomStride = uint64_t{1024 >> 4} << 32;  // eight lines of K
  return kSwizzle128 | kAtomStride | static_cast<uint64_t>(panel >> 4) << 16 |
         ((address & 0x3FFFF) >> 4);
}

/// d [64, 64] (+)= a [64, 16] b [16, 64], both from shared memory, K along the lines.
__device__ __forceinline__ void wgmma_bf16_shared(float (&d)[32], uint64_t a, uint64_t b,
                                                  int accumulate) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31},"
      "%32, %33, p, 1, 1, 0, 0;\n}\n"
      : NIBBLE_F16(d, 0), NIBBLE_F16(d, 16)
      : "l"(a), "l"(b), "r"(accumulate));
}

/// d [64, 256] += a [64, 16] from registers, b [16, 256] from shared memory, N along the lines.
__device__ __forceinline__ void wgmma_bf16_columns(float (&d)[128], const uint32_t (&a)[4],
                                                   uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,"
      "%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,"
      "%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,"
      "%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
      "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,"
      "%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,"
      "%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127},"
      "{%128,%129,%130,%131}, %132, 1, 1, 1, 1;\n"
      : NIBBLE_F16(d, 0), NIBBLE_F16(d, 16), NIBBLE_F16(d, 32), NIBBLE_F16(d, 48),
        NIBBLE_F16(d, 64), NIBBLE_F16(d, 80), NIBBLE_F16(d, 96), NIBBLE_F16(d, 112)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

#endif  // __CUDA_ARCH_FEAT_SM90_ALL

}  // namespace nibble::cuda
