// DeviceLedger: the bytes of one card that its buffers hold, counted. It knows nothing of CUDA.
#pragma once

#include <cstdint>
#include <mutex>

namespace nibble::cuda {

/// Any thread may call it.
class DeviceLedger {
 public:
  /// Counts an allocation of `bytes` and returns true, if they are within the limit.
  bool take(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (limit_bytes_ > 0 && used_bytes_ + bytes > limit_bytes_) return false;
    used_bytes_ += bytes;
    ++allocations_;
    return true;
  }
  void give(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    used_bytes_ -= bytes;
  }
  /// From now on, allocations that would pass this many bytes fail as on a full card; 0: no limit.
  void limit(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_bytes_ = bytes;
  }
  int64_t used_bytes() const {
    const std::lock_guard lock(mutex_);
    return used_bytes_;
  }
  /// The number of allocations so far.
  int64_t allocations() const {
    const std::lock_guard lock(mutex_);
    return allocations_;
  }

 private:
  mutable std::mutex mutex_;
  int64_t used_bytes_ = 0;
  int64_t allocations_ = 0;
  int64_t limit_bytes_ = 0;
};

}  // namespace nibble::cuda
