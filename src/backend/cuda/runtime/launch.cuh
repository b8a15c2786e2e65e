// The one place that launches: grid, block, overlap with the kernel before.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/runtime/launcher.h"
#include "backend/cuda/runtime/per_device.h"

namespace nibble::cuda {

/// The most dynamic shared memory that a thread block may have on the current device, whatever
/// smaller card a launch imitates.
inline int card_shared_bytes() {
  static PerDevice<int> limits;
  return limits.get([] {
    int device = 0;
    int bytes = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    return bytes;
  });
}

/// Lets thread blocks of `kernel` have `bytes` of dynamic shared memory.
template <typename... Parameters>
void allow_shared(void (*kernel)(Parameters...), int bytes) {
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
}

/// Thread blocks of `kernel` that one SM of the current device runs at once; at least one.
template <typename... Parameters>
int resident_blocks(void (*kernel)(Parameters...), int threads, int shared_bytes = 0) {
  int blocks = 1;
  CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads,
                                                           static_cast<size_t>(shared_bytes)));
  return blocks < 1 ? 1 : blocks;
}

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const Launcher& launcher, dim3 grid, dim3 block,
            size_t shared_bytes, Arguments&&... arguments) {
  if ((launcher.skipped & step_bit(launcher.step)) != 0) return;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = launcher.stream;
  cudaLaunchAttribute attributes[3] = {};
  config.attrs = attributes;
  if (launcher.card.overlaps() && launcher.start == Launcher::Start::overlapped) {
    attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
  }
  if ((launcher.carveout_steps & step_bit(launcher.step)) != 0) {
    attributes[config.numAttrs].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attributes[config.numAttrs++].val.sharedMemCarveout = kCarveoutPercent;
  }
  if (launcher.cluster > 1) {
    attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
    attributes[config.numAttrs++].val.clusterDim = {static_cast<unsigned>(launcher.cluster), 1, 1};
  }
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace nibble::cuda
