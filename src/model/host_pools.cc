// Ids to bytes.
#include "model/host_pools.h"

#include <bit>

namespace nibble {

HostPools::HostPools(const PoolSizes& sizes, const Bytes& bytes)
    : page_bytes_(bytes.page),
      slot_bytes_(bytes.state + sizes.replay_rows * bytes.replay_row),
      media_row_bytes_(bytes.media_row),
      pages_(sizes.host_pages * page_bytes_),
      slots_(sizes.host_slots * slot_bytes_),
      media_(sizes.host_media_rows * media_row_bytes_) {}

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
