// One thread that stops the card, one that writes where nothing is.
#include <cuda_runtime.h>

#include "backend/cuda/faults/fatal_kernels.h"
#include "base/check.h"

namespace nibble::cuda {
namespace {

__global__ void trap_kernel() { __trap(); }
__global__ void write_kernel(int* nowhere) { *nowhere = 1; }

}  // namespace

void run_fatal_kernel(Fatal kind) {
  cudaStream_t stream = nullptr;
  CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  if (kind == Fatal::trap)
    trap_kernel<<<1, 1, 0, stream>>>();
  else
    write_kernel<<<1, 1, 0, stream>>>(reinterpret_cast<int*>(16));
  CHECK(cudaGetLastError() == cudaSuccess);
}

}  // namespace nibble::cuda
