// Kernels after which a process has no card any more. For tests.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace nibble::cuda {

/// spin: every SM is busy, for a minute unless the process ends before; what else is launched
/// waits.
enum class Fatal : uint8_t { trap, illegal_address, spin };

/// Launches it on a stream of its own and does not wait. Errors: those of the launch.
cudaError_t run_fatal_kernel(Fatal kind);

}  // namespace nibble::cuda
