// Barriers in shared memory that count arrivals and bytes (mbarrier, sm_90), and named barriers of
// some of a block's warps. A barrier is given by its address in shared memory (shared_address).
#pragma once

#include <cstdint>

#include "backend/cuda/ptx/cluster.cuh"

namespace nibble::cuda {

__device__ __forceinline__ void barrier_init(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
/// Makes new barriers visible to the cluster and to copies, after the next barrier of the threads.
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives at a barrier of any block of the cluster (address_in_block).
__device__ __forceinline__ void barrier_arrive_in_cluster(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
/// Arrives, and tells the barrier of `bytes` that copies will bring in this phase.
__device__ __forceinline__ void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
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
/// Stores 16 bytes in the shared memory of a block of the cluster, counted by its `barrier`. What
/// a barrier counts is visible to those that wait for it, so nothing else need be ordered.
__device__ __forceinline__ void store_async_16(uint32_t to, const float4& v, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1,%2,%3,%4}, "
      "[%5];" ::"r"(to),
      "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier)
      : "memory");
}

/// A barrier of the kThreads threads that call this with the same kBarrier, 1 to 15.
template <int kBarrier, int kThreads>
__device__ __forceinline__ void sync_threads() {
  asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
}

}  // namespace nibble::cuda
