// Kernels after which a process has no card any more. For tests.
#pragma once

#include <cstdint>

namespace nibble::cuda {

enum class Fatal : uint8_t { trap, illegal_address };

/// Launches it on a stream of its own and does not wait.
void run_fatal_kernel(Fatal kind);

}  // namespace nibble::cuda
