// Blocks of a cluster and their shared memory (compute capability 9.0). Built for older cards, a
// block is a cluster of its own.
#pragma once

#include <cstdint>

namespace nibble::cuda {

/// A shared address as instructions take it.
__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
__device__ __forceinline__ int rank_in_cluster() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
__device__ __forceinline__ int blocks_in_cluster() {
  uint32_t blocks;
  asm volatile("mov.u32 %0, %cluster_nctaid.x;" : "=r"(blocks));
  return static_cast<int>(blocks);
}
/// Makes this thread's writes visible to all threads of the cluster after the next
/// wait_for_cluster(), for which every thread that has not ended must have arrived.
__device__ __forceinline__ void arrive_at_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
/// Does the same without ordering what this thread wrote.
__device__ __forceinline__ void show_at_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void wait_for_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
/// The address of `own` in block `rank` of the cluster.
__device__ __forceinline__ uint32_t address_in_block(uint32_t own, int rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(own), "r"(rank));
  return there;
}
/// Stores a word where `own` lies in block `rank`.
__device__ __forceinline__ void store_in_cluster(void* own, int rank, uint32_t value) {
  asm volatile(
      "{\n.reg .u32 at;\nmapa.shared::cluster.u32 at, %0, %1;\n"
      "st.shared::cluster.u32 [at], %2;\n}\n" ::"r"(shared_address(own)),
      "r"(rank), "r"(value)
      : "memory");
}
#else
__device__ __forceinline__ int rank_in_cluster() { return 0; }
__device__ __forceinline__ int blocks_in_cluster() { return 1; }
__device__ __forceinline__ void arrive_at_cluster() {}
__device__ __forceinline__ void show_at_cluster() {}
__device__ __forceinline__ void wait_for_cluster() { __syncthreads(); }
__device__ __forceinline__ void store_in_cluster(void* own, int, uint32_t value) {
  *static_cast<uint32_t*>(own) = value;
}
#endif

}  // namespace nibble::cuda
