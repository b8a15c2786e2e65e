// E4M3 codes of the reordered words of code_words.h as whole bytes, in an order that takes few
// instructions: a product of two rows in that order is that of the columns (ops/quantized).
#pragma once

#include <cstdint>

namespace nibble::cuda {

/// Byte i of the first word of eight columns gets the code of column fp8_column(i), of the second
/// that of column fp8_column(4 + i).
constexpr uint32_t e4m3_bytes(uint32_t word) {
  return (word >> 4 & 0x007F007FU) | (word >> 8 & 0x00800080U) |
         ((word << 8 ^ word) & 0x7F007F00U) | ((word << 4 ^ word >> 4) & 0x80008000U);
}
/// 0 1 4 5 2 3 6 7, which is its own inverse.
constexpr int fp8_column(int byte) { return static_cast<int>(0x76325410U >> (4 * byte) & 7U); }

}  // namespace nibble::cuda
