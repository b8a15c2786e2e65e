// Slices of a DeviceBuffer, and what cuts them. Without CUDA headers, so that the layout of a
// workspace is computed, and tested, without a card.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace nibble::cuda {

/// A part of a DeviceBuffer that another object owns. A slice that shares memory with others holds
/// anything before it is written.
class DeviceSlice {
 public:
  DeviceSlice() = default;
  DeviceSlice(void* data, int64_t bytes) : data_(data), bytes_(bytes) {}
  int64_t bytes() const { return bytes_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::span<std::byte> span() const { return {as<std::byte>(), static_cast<size_t>(bytes_)}; }

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// Cuts slices from the front of `base`, each 256-byte aligned. Without a base it only counts.
class DeviceCarver {
 public:
  explicit DeviceCarver(std::byte* base) : base_(base) {}
  DeviceSlice take(int64_t bytes) {
    const DeviceSlice slice(end(), bytes);
    used_ += (bytes + 255) / 256 * 256;
    return slice;
  }
  int64_t used() const { return used_; }
  /// Returns where the next slice begins; null without a base.
  std::byte* end() const { return base_ == nullptr ? nullptr : base_ + used_; }

 private:
  std::byte* base_;
  int64_t used_ = 0;
};

}  // namespace nibble::cuda
