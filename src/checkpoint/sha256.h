// SHA-256 (FIPS 180-4), to tell files and settings apart; not for secrets.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace nibble {

class Sha256 {
 public:
  void add(std::span<const std::byte> data);
  void add(std::string_view text) { add(std::as_bytes(std::span(text))); }
  /// 64 hex digits. Nothing may be added afterwards.
  std::string hex();

 private:
  void compress(const uint8_t* block);

  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> block_ = {};
  uint64_t bytes_ = 0;
};

std::string sha256_hex(std::string_view text);

}  // namespace nibble
