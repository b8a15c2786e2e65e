// The operands with which a card is tried on the instruction for E4M3 numbers (fp8_mma.cuh), as
// functions of a number, for host and device: all 256 x 256 pairs of codes, and random codes. The
// products of one case are computed here in double, element by element.
#pragma once

#include <bit>

#include "backend/cuda/ops/quantized/fp4_cases.h"

namespace nibble::cuda {

inline constexpr int kFp8Rows = 16;                        // rows of a and d
inline constexpr int kFp8Columns = 8;                      // columns of b and d
inline constexpr int kFp8Depth = 32;                       // columns of a, rows of b
inline constexpr int kFp8RightBlocks = 256 / kFp8Columns;  // of codes in a fragment
inline constexpr int kFp8Pairs = 256 / kFp8Rows * kFp8RightBlocks;
inline constexpr int kFp8Random = 64;  // cases of each other kind

/// pairs: one column of a and row of b is not zero, so that a sum is one product. integers: codes
/// of 0, 1 and 2, whose sums are exact in ten bits. any: every code that is a number.
enum class Fp8CaseKind : uint8_t { pairs, integers, any };
struct Fp8Case {
  Fp8CaseKind kind = Fp8CaseKind::pairs;
  int index = 0;
};
NIBBLE_FP4 constexpr int fp8_cases() { return kFp8Pairs + 2 * kFp8Random; }
NIBBLE_FP4 constexpr Fp8Case fp8_case(int number) {
  if (number < kFp8Pairs) return {Fp8CaseKind::pairs, number};
  const int rest = number - kFp8Pairs;
  return {rest < kFp8Random ? Fp8CaseKind::integers : Fp8CaseKind::any, rest % kFp8Random};
}

NIBBLE_FP4 constexpr uint32_t fp8_random_code(const Fp8Case& of, uint32_t what, int place) {
  constexpr uint64_t kIntegers = 0xB838C0B880403800U;  // 0, 1, 2, -0, -1, -2, 1, -1
  const uint32_t random = fp4_random({.index = of.index}, what, place);
  if (of.kind == Fp8CaseKind::integers)
    return static_cast<uint32_t>(kIntegers >> (random % 8 * 8) & 0xFFU);
  return (random & 0x7FU) == 0x7FU ? random & 0x80U : random & 0xFFU;  // no NaN
}
NIBBLE_FP4 constexpr uint32_t fp8_left_code(const Fp8Case& of, int row, int k) {
  if (of.kind != Fp8CaseKind::pairs) return fp8_random_code(of, 1, row * kFp8Depth + k);
  if (k != of.index % kFp8Depth) return 0;
  return static_cast<uint32_t>(of.index / kFp8RightBlocks * kFp8Rows + row);
}
NIBBLE_FP4 constexpr uint32_t fp8_right_code(const Fp8Case& of, int k, int column) {
  if (of.kind != Fp8CaseKind::pairs) return fp8_random_code(of, 2, k * kFp8Columns + column);
  if (k != of.index % kFp8Depth) return 0;
  return static_cast<uint32_t>(of.index % kFp8RightBlocks * kFp8Columns + column);
}
/// The number that d holds before.
NIBBLE_FP4 constexpr float fp8_start(const Fp8Case& of, int row, int column) {
  if (of.kind == Fp8CaseKind::pairs) return 0.0F;
  const uint32_t random = fp4_random({.index = of.index}, 3, row * kFp8Columns + column);
  return static_cast<float>(static_cast<int>(random % 64U) - 32);
}

/// The number of a code; NaN where it is none.
NIBBLE_FP4 constexpr float fp8_value(uint32_t code) {
  const uint32_t sign = (code & 0x80U) << 24;
  const uint32_t size = code & 0x7FU;
  if (size == 0x7FU) return std::bit_cast<float>(0x7FC00000U);
  if (size < 8U) return std::bit_cast<float>(std::bit_cast<uint32_t>(size * 0x1p-9F) | sign);
  return std::bit_cast<float>((size + (120U << 3)) << 20 | sign);
}

struct Fp8Sum {
  double value = 0.0;
  double magnitude = 0.0;  // sum of the magnitudes of all that is added
};
NIBBLE_FP4 constexpr Fp8Sum fp8_sum(const Fp8Case& of, int row, int column) {
  const double start = fp8_start(of, row, column);
  Fp8Sum sum{start, start < 0 ? -start : start};
  for (int k = 0; k < kFp8Depth; ++k) {
    const double product =
        double{fp8_value(fp8_left_code(of, row, k))} * fp8_value(fp8_right_code(of, k, column));
    sum.value += product;
    sum.magnitude += product < 0 ? -product : product;
  }
  return sum;
}

}  // namespace nibble::cuda
