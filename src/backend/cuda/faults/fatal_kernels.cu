// One thread that stops the card, one that writes where nothing is, and as many as the card holds
// that do not end.
#include "backend/cuda/faults/fatal_kernels.h"

namespace nibble::cuda {
namespace {

constexpr int kSpinThreads = 1024;
constexpr uint64_t kSpinNanoseconds = 60'000'000'000;  // a card that is not lost comes back

__global__ void trap_kernel() { __trap(); }
__global__ void write_kernel(int* nowhere) { *nowhere = 1; }

__device__ uint64_t nanoseconds() {
  uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}
__global__ void spin_kernel() {
  const uint64_t begin = nanoseconds();
  while (nanoseconds() - begin < kSpinNanoseconds) __nanosleep(1000);
}

/// Blocks that leave no thread of the card free.
cudaError_t filling_blocks(int& blocks) {
  int each = 0;
  int multiprocessors = 0;
  cudaError_t status =
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, spin_kernel, kSpinThreads, 0);
  if (status == cudaSuccess)
    status = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0);
  blocks = each * multiprocessors;
  return status;
}

}  // namespace

cudaError_t run_fatal_kernel(Fatal kind) {
  cudaStream_t stream = nullptr;
  int blocks = 0;
  cudaError_t status = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (status == cudaSuccess) status = filling_blocks(blocks);
  if (status != cudaSuccess) return status;
  switch (kind) {
    case Fatal::trap:
      trap_kernel<<<1, 1, 0, stream>>>();
      break;
    case Fatal::illegal_address:
      write_kernel<<<1, 1, 0, stream>>>(reinterpret_cast<int*>(16));
      break;
    case Fatal::spin:
      spin_kernel<<<blocks, kSpinThreads, 0, stream>>>();
      break;
  }
  return cudaGetLastError();
}

}  // namespace nibble::cuda
