// HostPools: the pools in host memory that mirror the cache pools, as a backend whose device is the
// host keeps them: plain bytes by id. What a page or a slot means is the backend's business.
#pragma once

#include <cstdint>
#include <span>

#include "model/backend.h"
#include "tensor/tensor.h"

namespace nibble {

class HostPools {
 public:
  HostPools() = default;
  /// sizes.host_pages x page_bytes + sizes.host_slots x (state_bytes + sizes.replay_rows x
  /// replay_row_bytes).
  HostPools(const PoolSizes& sizes, int64_t page_bytes, int64_t state_bytes,
            int64_t replay_row_bytes = 0);

  std::span<std::byte> page(int32_t id) { return at(pages_, id, page_bytes_); }
  /// The state, then the saved inputs.
  std::span<std::byte> state(int32_t id) { return at(slots_, id, slot_bytes_); }

 private:
  static std::span<std::byte> at(Buffer& buffer, int32_t id, int64_t bytes);

  int64_t page_bytes_ = 0;
  int64_t slot_bytes_ = 0;
  Buffer pages_;
  Buffer slots_;
};

/// True if no value is infinite or NaN.
bool all_finite(std::span<const float> values);

}  // namespace nibble
