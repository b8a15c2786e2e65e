// All kernels are launched here: grid, block, and overlap with the previous kernel.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/runtime/device_context.h"
#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/runtime/launcher.h"

namespace nibble::cuda {

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
