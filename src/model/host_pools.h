// HostPools: the pools in host memory that mirror the cache pools, as a backend whose device is the
// host keeps them: plain bytes by id. What a page or a slot means is the backend's business.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "model/backend.h"
#include "tensor/tensor.h"

namespace nibble {

class HostPools {
 public:
  HostPools() = default;
  /// The bytes of one page, of one state, of the saved inputs of one row, and of one media row.
  struct Bytes {
    int64_t page = 0;
    int64_t state = 0;
    int64_t replay_row = 0;
    int64_t media_row = 0;
  };
  /// sizes.host_pages pages, sizes.host_slots states with sizes.replay_rows saved rows each, and
  /// sizes.host_media_rows media rows.
  HostPools(const PoolSizes& sizes, const Bytes& bytes);

  std::span<std::byte> page(int32_t id) { return at(pages_, id, page_bytes_); }
  /// The state, then the saved inputs.
  std::span<std::byte> state(int32_t id) { return at(slots_, id, slot_bytes_); }
  /// A media row.
  std::span<std::byte> media(int32_t id) { return at(media_, id, media_row_bytes_); }
  /// Copies media rows between this pool and the device's, whose row `id` is `row(id)`, floats.
  template <typename Row>
  void move_media(CacheMove move, std::span<const IdPair> rows, const Row& row) {
    CHECK(move != CacheMove::copy, "media rows are not copied within the device");
    const size_t bytes = static_cast<size_t>(media_row_bytes_);
    for (const auto [from, to] : rows) {
      if (move == CacheMove::store) std::memcpy(media(to).data(), row(from), bytes);
      if (move == CacheMove::load) std::memcpy(row(to), media(from).data(), bytes);
    }
  }

 private:
  static std::span<std::byte> at(Buffer& buffer, int32_t id, int64_t bytes);

  int64_t page_bytes_ = 0;
  int64_t slot_bytes_ = 0;
  int64_t media_row_bytes_ = 0;
  Buffer pages_;
  Buffer slots_;
  Buffer media_;
};

/// True if no value is infinite or NaN.
bool all_finite(std::span<const float> values);

}  // namespace nibble
