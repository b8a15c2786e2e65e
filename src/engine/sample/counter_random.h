// A counter-based random number: a pure function of (seed, choice, position), so that a sequence
// draws the same numbers whatever else runs. Philox4x32-10 of Salmon, Moraes, Dror, Shaw,
// "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
#pragma once

#include <array>
#include <cstdint>

namespace nibble {

using PhiloxBlock = std::array<uint32_t, 4>;

/// Ten rounds of Philox4x32 over a 128-bit counter and a 64-bit key.
inline PhiloxBlock philox4x32(PhiloxBlock counter, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53U} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
  return counter;
}

/// 64 uniform random bits. `position` counts the tokens of the whole sequence.
inline uint64_t random_bits_at(uint64_t seed, uint32_t choice, uint64_t position) {
  const PhiloxBlock block = philox4x32(
      {static_cast<uint32_t>(position), static_cast<uint32_t>(position >> 32), choice, 0},
      {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t{block[0]} << 32 | block[1];
}

}  // namespace nibble
