// The card that a check runs on.
#pragma once

#include <cstdio>
#include <cstdlib>

#include "backend/cuda/runtime/device_context.h"
#include "model/backend.h"

namespace nibble::bench {

/// The first card, opened at the first call. Ends the program if there is none.
inline cuda::DeviceContext& opened_device() {
  static const auto device = cuda::DeviceContext::open({});
  if (!device.ok()) {
    std::printf("%s\n", device.error().message.c_str());
    std::exit(2);
  }
  return *device.value();
}

}  // namespace nibble::bench
