// The card that checks run on.
#pragma once

#include "backend/cuda/runtime/device_context.h"
#include "base/check.h"
#include "model/backend.h"

namespace nibble::checks {

/// The first card, opened at the first call and kept for as long as the process lives. CHECKs that
/// there is one: describe_cuda_device() is asked before.
inline cuda::DeviceContext& opened_device() {
  static const auto device = cuda::DeviceContext::open({});
  CHECK(device.ok(), device.error().message);
  return *device.value();
}

}  // namespace nibble::checks
