// Bit sets over the vocabulary, as masks are: token t at bit t % 32 of word t / 32.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace nibble {

inline bool has_token(std::span<const uint32_t> bits, int32_t token) {
  return (bits[static_cast<size_t>(token) / 32] >> (static_cast<uint32_t>(token) % 32) & 1U) != 0;
}

inline void forbid_token(std::span<uint32_t> bits, int32_t token) {
  bits[static_cast<size_t>(token) / 32] &= ~(1U << (static_cast<uint32_t>(token) % 32));
}

inline void allow_token(std::span<uint32_t> bits, int32_t token) {
  bits[static_cast<size_t>(token) / 32] |= 1U << (static_cast<uint32_t>(token) % 32);
}

/// Clears all bits but that of `token`, which stays as it is.
inline void forbid_all_but(std::span<uint32_t> bits, int32_t token) {
  const bool allowed = has_token(bits, token);
  std::ranges::fill(bits, 0U);
  if (allowed) bits[static_cast<size_t>(token) / 32] = 1U << (static_cast<uint32_t>(token) % 32);
}

}  // namespace nibble
