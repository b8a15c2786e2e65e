// Unicode classes as the split patterns use them (\p{L}, \p{M}, \p{N}, \s) and as NFC needs them,
// equal to Hugging Face tokenizers 0.23 on every code point. A two-stage table, built once from the
// generated runs (tools/unicode). Not general Unicode properties: no case, no scripts.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace nibble {

enum UnicodeBit : uint8_t {
  kLetter = 1,
  kMark = 2,
  kNumber = 4,
  kSpace = 8,
  kNfcActive = 16,  // NFC may change, reorder or join it to what stands before
  kYoung = 32,      // got its class after Unicode 14: PCRE2 10.42 takes it for unassigned
};

class UnicodeClasses {
 public:
  static const UnicodeClasses& table();

  /// Sum of UnicodeBits of a code point below 0x110000.
  uint8_t bits(char32_t code) const { return blocks_[block_of_[code >> 8] + (code & 255)]; }

 private:
  UnicodeClasses();
  std::array<uint32_t, 0x1100> block_of_;  // offset into blocks_ for each 256 code points
  std::vector<uint8_t> blocks_;
};

namespace detail {
/// Words of first code point << 8 | bits, ascending, the first for code point 0.
extern const std::span<const uint32_t> kUnicodeRuns;
}  // namespace detail

}  // namespace nibble
