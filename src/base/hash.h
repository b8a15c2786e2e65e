// 64-bit hashes for tables, checksums and journals. They are fast, not secret: a digest that must
// withstand an adversary is sha256.h.
#pragma once

#include <cstdint>

namespace nibble {

inline constexpr uint64_t kFnvBasis = 0xCBF29CE484222325U;

/// FNV-1a: the hash of what came before and one more byte, or any small whole number.
constexpr uint64_t fnv1a(uint64_t hash, uint64_t value) { return (hash ^ value) * 0x100000001B3U; }

/// The hash of what came before and one more 64-bit value; files keep it, so it may not change.
constexpr uint64_t mixed_hash(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
  return hash ^ (hash >> 32);
}

}  // namespace nibble
