// Values asked of a card or set for a kernel once are kept for each device: a second card in the
// same process has its own facts and attributes.
#pragma once

#include <cuda_runtime_api.h>

#include <map>
#include <mutex>

#include "backend/cuda/runtime/device_memory.h"

namespace nibble::cuda {

template <typename T>
class PerDevice {
 public:
  /// The value for the current device; `make` runs at the first call on that device. Any thread.
  template <typename Make>
  const T& get(const Make& make) {
    int device = 0;
    CUDA_CHECK(cudaGetDevice(&device));
    const std::lock_guard lock(mutex_);
    const auto known = values_.find(device);
    if (known != values_.end()) return known->second;
    return values_.emplace(device, make()).first->second;
  }

 private:
  std::mutex mutex_;
  std::map<int, T> values_;
};

}  // namespace nibble::cuda
