// The order of codes of 4 and 8 bits in words on the device. A file has them one after the other;
// here their bits are mixed so that a word widens to BF16 in few instructions: selections of bits
// from the word, a rotated copy and products by powers of two, which a GPU computes on another
// pipe. A selection may add two copies (exclusive or), so widening is linear over GF(2), and laying
// is its inverse.
//
// Eight columns go together, as pairs (0, 4) (1, 5) (2, 6) (3, 7): one word of E2M1, or two of E4M3
// with two pairs each.
#pragma once

#include <array>
#include <cstdint>

namespace nibble::cuda {

/// These are BF16 times 2^-126: the sign is at bit 15, the magnitude at bits 8..6 of each half.
struct E2m1Pairs {
  uint32_t of[4];
};
constexpr E2m1Pairs e2m1_pairs(uint32_t word) {
  constexpr uint32_t kFields = 0x81C081C0U;
  const uint32_t turned = word >> 6 | word << 26;
  return {{(word ^ word * 4U) & kFields, (word ^ turned * 4U) & kFields, (word * 64U) & kFields,
           turned & kFields}};
}

/// These are BF16 times 2^-120: the sign is at bit 15, the magnitude at bits 10..4 of each half.
struct E4m3Pairs {
  uint32_t of[2];
};
constexpr E4m3Pairs e4m3_pairs(uint32_t word) {
  constexpr uint32_t kFields = 0x87F087F0U;
  return {{word & kFields, (word * 16U ^ word >> 4) & kFields}};
}

/// Returns the codes of a reordered word: code i of a pair's low half (i < 4) or high half.
constexpr uint32_t e2m1_codes(uint32_t word) {
  const E2m1Pairs pairs = e2m1_pairs(word);
  uint32_t codes = 0;
  for (int i = 0; i < 8; ++i) {
    const uint32_t field = pairs.of[i % 4] >> (i < 4 ? 0 : 16);
    codes |= ((field >> 12 & 8U) | (field >> 6 & 7U)) << (4 * i);
  }
  return codes;
}
/// Returns the codes of a reordered word as whole nibbles, in an order that takes few instructions:
/// nibble i has the code of column fp4_column(i). A product of two rows in that order is that of
/// the columns (ops/quantized).
constexpr uint32_t e2m1_nibbles(uint32_t word) {
  constexpr uint32_t kSigns = 0x88888888U;
  const auto join = [](uint32_t sizes, uint32_t signs) {
    return (sizes & ~kSigns) | (signs & kSigns);
  };
  const uint32_t turned6 = word >> 6 | word << 26;
  const uint32_t turned4 = word >> 4 | word << 28;
  const uint32_t first = word ^ word >> 2;  // the sizes of columns 0 and 4 in nibbles 1 and 5
  const uint32_t second = word ^ turned4;   // those of columns 1 and 5, two bits too low
  const uint32_t outer = join(word, turned6);
  const uint32_t inner = join(first, first >> 6);
  const uint32_t other = join(second << 2, second >> 4);
  return (outer & 0xF00FF00FU) | (inner & 0x00F000F0U) | (other & 0x0F000F00U);
}
/// 2 0 1 3 6 4 5 7
constexpr int fp4_column(int nibble) { return static_cast<int>(0x75463102U >> (4 * nibble) & 7U); }
/// The nibble that a column has there; 1 2 0 3 5 6 4 7.
constexpr int fp4_nibble(int column) { return static_cast<int>(0x74653021U >> (4 * column) & 7U); }

/// The bytes are likewise the low and high half of the first pair, then of the second.
constexpr uint32_t e4m3_codes(uint32_t word) {
  const E4m3Pairs pairs = e4m3_pairs(word);
  uint32_t codes = 0;
  for (int i = 0; i < 4; ++i) {
    const uint32_t field = pairs.of[i / 2] >> (i % 2 == 0 ? 0 : 16);
    codes |= ((field >> 8 & 0x80U) | (field >> 4 & 0x7FU)) << (8 * i);
  }
  return codes;
}

/// The word that each bit of the codes adds (exclusive or): `codes_of` inverted, by Gauss-Jordan
/// elimination.
template <typename CodesOf>
constexpr std::array<uint32_t, 32> code_places(CodesOf codes_of) {
  std::array<uint32_t, 32> codes{};
  std::array<uint32_t, 32> words{};
  for (int i = 0; i < 32; ++i) {
    words[i] = 1U << i;
    codes[i] = codes_of(words[i]);
  }
  for (int bit = 0; bit < 32; ++bit) {
    int pivot = bit;
    while ((codes[pivot] >> bit & 1U) == 0) ++pivot;  // past the end: no inverse, no constant
    const uint32_t code = codes[pivot];
    const uint32_t word = words[pivot];
    codes[pivot] = codes[bit];
    words[pivot] = words[bit];
    codes[bit] = code;
    words[bit] = word;
    for (int i = 0; i < 32; ++i) {
      if (i == bit || (codes[i] >> bit & 1U) == 0) continue;
      codes[i] ^= code;
      words[i] ^= word;
    }
  }
  return words;
}
constexpr uint32_t place_codes(uint32_t codes, const std::array<uint32_t, 32>& places) {
  uint32_t word = 0;
  for (uint32_t bit = 0; bit < 32; ++bit)
    if ((codes >> bit & 1U) != 0) word ^= places[bit];
  return word;
}

/// Returns the reordered word of eight codes that a file has in column i at bits 4 i .. 4 i + 3.
constexpr uint32_t lay_e2m1(uint32_t codes) {
  constexpr std::array<uint32_t, 32> kPlaces = code_places(e2m1_codes);
  return place_codes(codes, kPlaces);
}
/// Returns the reordered words of eight codes that a file has in column i at byte i.
struct E4m3Words {
  uint32_t of[2];
};
constexpr E4m3Words lay_e4m3(uint32_t low, uint32_t high) {
  constexpr std::array<uint32_t, 32> kPlaces = code_places(e4m3_codes);
  const uint32_t first =
      (low & 0xFFU) | (high & 0xFFU) << 8 | (low & 0xFF00U) << 8 | (high & 0xFF00U) << 16;
  const uint32_t second =
      (low >> 16 & 0xFFU) | (high >> 8 & 0xFF00U) | (low >> 8 & 0xFF0000U) | (high & 0xFF000000U);
  return {{place_codes(first, kPlaces), place_codes(second, kPlaces)}};
}

/// Returns the code of column `column` of a row of reordered words.
constexpr uint32_t e2m1_code(const uint32_t* row, int column) {
  return e2m1_codes(row[column / 8]) >> (4 * (column % 8)) & 0xFU;
}
constexpr uint32_t e4m3_code(const uint32_t* row, int column) {
  const uint32_t codes = e4m3_codes(row[column / 8 * 2 + column % 4 / 2]);
  return codes >> (8 * (column % 2 * 2 + column % 8 / 4)) & 0xFFU;
}

}  // namespace nibble::cuda
