// The one place that launches: grid, block, overlap with the kernel before.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/kernels.h"
#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/runtime/per_device.h"

namespace nibble::cuda {

/// Shared memory that one block may have.
inline int shared_limit(const Launcher& launcher) {
  static PerDevice<int> limits;
  const int of_card = limits.get([] {
    int device = 0;
    int bytes = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    CUDA_CHECK(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    return bytes;
  });
  return launcher.shared_bytes > 0 && launcher.shared_bytes < of_card ? launcher.shared_bytes
                                                                      : of_card;
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
  if (launcher.overlap) {
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
