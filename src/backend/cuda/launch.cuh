// The one place that launches: grid, block, overlap with the kernel before.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/device_memory.h"
#include "backend/cuda/kernels.h"

namespace nibble::cuda {

template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), const Launcher& launcher, dim3 grid, dim3 block,
            size_t shared_bytes, Arguments&&... arguments) {
  if ((launcher.skipped >> static_cast<int>(launcher.step) & 1U) != 0) return;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = launcher.stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = launcher.overlap ? 1 : 0;
  CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...));
}

}  // namespace nibble::cuda
