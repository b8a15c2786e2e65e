// The copies of cache bytes that one call asks of a backend (CacheStore), sorted into runs of
// adjacent ids.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace nibble {

/// copy: within the pool of the device. store: from there to the pool of the host. load: back.
enum class CacheMove : uint8_t { copy, store, load };

/// The ids of one page or one slot, in the pool that it is copied from and in the other.
struct IdPair {
  int32_t from = 0;
  int32_t to = 0;
  bool operator==(const IdPair&) const = default;
};

/// Ids from, from + 1, ... that are copied to to, to + 1, ...
struct IdRun {
  int32_t from = 0;
  int32_t to = 0;
  int32_t count = 0;
  bool operator==(const IdRun&) const = default;
};

/// The pairs as runs that are as long as can be, ascending in `to`. CHECKs that the pairs may be
/// copied in any order: no id is written twice, and none that is written is read by the same call.
std::vector<IdRun> adjacent_runs(CacheMove move, std::span<const IdPair> pairs);
/// The ids as runs that are as long as can be, ascending; `from` and `to` are the same.
std::vector<IdRun> adjacent_runs(std::span<const int32_t> ids);

}  // namespace nibble
