// Threads that copy between host memory and a card, each with a page-locked buffer and a stream of
// its own.
#pragma once

#include <functional>

#include "backend/cuda/runtime/device_context.h"
#include "base/result.h"

namespace nibble::cuda {

/// Calls `work` on several threads at once, whose current device is `device`, and waits for all of
/// them. Errors: the first that any of them had.
Result<void> on_copy_threads(const DeviceContext& device,
                             const std::function<Result<void>()>& work);

}  // namespace nibble::cuda
