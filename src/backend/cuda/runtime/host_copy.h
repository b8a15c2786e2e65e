// A HostCopy has the contents of a device buffer in ordinary host memory while the card is free.
// Many threads move them through small page-locked buffers, because locking all of it would take
// longer than the copies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "backend/cuda/runtime/device_memory.h"

namespace nibble::cuda {

class HostCopy {
 public:
  HostCopy() = default;
  /// Errors: no_memory.
  static Result<HostCopy> of(const DeviceBuffer& buffer);
  HostCopy(HostCopy&& other) noexcept { swap(other); }
  HostCopy& operator=(HostCopy&& other) noexcept {
    swap(other);
    return *this;
  }
  ~HostCopy();

  bool empty() const { return data_ == nullptr; }
  /// Copies them into a buffer of the same size. Errors: no_memory (page-locked buffers).
  Result<void> restore(const DeviceBuffer& buffer) const;

 private:
  enum class Direction : uint8_t { to_host, to_device };
  Result<void> move(const DeviceBuffer& buffer, Direction direction) const;
  void swap(HostCopy& other) {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace nibble::cuda
