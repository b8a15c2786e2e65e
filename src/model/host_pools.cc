// Ids to bytes.
#include "model/host_pools.h"

#include <bit>

namespace nibble {

HostPools::HostPools(const PoolSizes& sizes, int64_t page_bytes, int64_t state_bytes,
                     int64_t replay_row_bytes)
    : page_bytes_(page_bytes),
      slot_bytes_(state_bytes + sizes.replay_rows * replay_row_bytes),
      pages_(sizes.host_pages * page_bytes_),
      slots_(sizes.host_slots * slot_bytes_) {}

std::span<std::byte> HostPools::at(Buffer& buffer, int32_t id, int64_t bytes) {
  CHECK(id >= 0 && (id + 1) * bytes <= buffer.bytes(), "host id ", id, " of ", buffer.bytes(),
        " bytes, ", bytes, " each");
  return buffer.span().subspan(static_cast<size_t>(id * bytes), static_cast<size_t>(bytes));
}

bool all_finite(std::span<const float> values) {
  constexpr uint32_t kExponent = 0x7F800000U;
  uint32_t bad = 0;
  for (const float value : values)
    bad |= static_cast<uint32_t>((std::bit_cast<uint32_t>(value) & kExponent) == kExponent);
  return bad == 0;
}

}  // namespace nibble
