// The cases with which a card is tried on products in FP8 leave no pair of codes out, and their
// sums are what they are said to be.
#include "backend/cuda/ops/quantized/fp8_cases.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "tensor/fp8.h"

namespace nibble::cuda {
namespace {

TEST(Fp8Cases, AllPairsOfCodes) {
  std::set<std::pair<uint32_t, uint32_t>> seen;
  std::set<int> depths;
  for (int number = 0; number < fp8_cases(); ++number) {
    const Fp8Case of = fp8_case(number);
    if (of.kind != Fp8CaseKind::pairs) continue;
    for (int k = 0; k < kFp8Depth; ++k) {
      if (fp8_left_code(of, 1, k) == 0) continue;
      depths.insert(k);
      for (int row = 0; row < kFp8Rows; ++row)
        for (int column = 0; column < kFp8Columns; ++column)
          seen.insert({fp8_left_code(of, row, k), fp8_right_code(of, k, column)});
    }
  }
  EXPECT_EQ(seen.size(), 256U * 256U);
  EXPECT_EQ(std::ssize(depths), kFp8Depth);
}

TEST(Fp8Cases, NumbersAreThoseOfTheCodec) {
  for (uint32_t code = 0; code < 256; ++code) {
    const float want = e4m3_values()[code];
    if (std::isnan(want))
      EXPECT_TRUE(std::isnan(fp8_value(code))) << code;
    else
      EXPECT_EQ(fp8_value(code), want) << code;
  }
}

/// A machine may add those of ten bits in any order and with few bits.
TEST(Fp8Cases, SumsAreExactWhereTheyMustBe) {
  int random = 0;
  for (int number = 0; number < fp8_cases(); ++number) {
    const Fp8Case of = fp8_case(number);
    for (int row = 0; row < kFp8Rows; ++row)
      for (int column = 0; column < kFp8Columns; ++column) {
        const Fp8Sum sum = fp8_sum(of, row, column);
        if (of.kind == Fp8CaseKind::integers) {
          EXPECT_EQ(sum.value, std::round(sum.value));
          EXPECT_LT(sum.magnitude, 1024.0);
        }
        if (of.kind == Fp8CaseKind::pairs && !std::isnan(sum.value))
          EXPECT_EQ(sum.value, static_cast<double>(static_cast<float>(sum.value)));
        if (of.kind == Fp8CaseKind::any) random += std::fabs(sum.value) > 1.0 ? 1 : 0;
      }
  }
  EXPECT_GT(random, kFp8Random * 100);
}

}  // namespace
}  // namespace nibble::cuda
