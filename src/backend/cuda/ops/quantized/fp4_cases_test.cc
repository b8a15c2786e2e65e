// The cases with which a card is tried leave nothing out: every pair of codes, every scale byte of
// every group and side, with each pair of lanes that can give scales; and what the host makes of
// them against products in double by the manual's formulas.
#include "backend/cuda/ops/quantized/fp4_cases.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <tuple>

namespace nibble::cuda {
namespace {

TEST(Fp4Cases, EachNumberIsACaseOfItsOwn) {
  std::set<std::tuple<int, int, int>> seen;
  for (int number = 0; number < fp4_cases(); ++number) {
    const Fp4Case of = fp4_case(number);
    EXPECT_EQ(of.selector, number % kFp4Selectors);
    EXPECT_LT(of.index, fp4_case_count(of.kind));
    seen.insert({static_cast<int>(of.kind), of.index, of.selector});
  }
  EXPECT_EQ(std::ssize(seen), fp4_cases());
}

TEST(Fp4Cases, AllPairsOfCodes) {
  std::set<std::tuple<int, uint32_t, uint32_t>> seen;
  for (int number = 0; number < fp4_cases(); ++number) {
    const Fp4Case of = fp4_case(number);
    if (of.kind != Fp4CaseKind::pairs) continue;
    const Fp4Lane lane = fp4_case_lane(of, 7);
    seen.insert({of.selector, lane.left[3] & 15U, lane.right[1] >> 28});
    EXPECT_EQ(lane.left_scale, 0x38383838U);
  }
  EXPECT_EQ(seen.size(), 16U * 16U * kFp4Selectors);
}

TEST(Fp4Cases, AllScaleBytesOfEachGroupAndSide) {
  std::set<std::tuple<int, int, int, uint32_t>> seen;
  for (int number = 0; number < fp4_cases(); ++number) {
    const Fp4Case of = fp4_case(number);
    if (of.kind != Fp4CaseKind::scale_bytes) continue;
    const Fp4Lane lane = fp4_case_lane(of, 11);
    const uint32_t scales[2] = {lane.left_scale, lane.right_scale};
    const int side = of.index / 1024;
    const int group = of.index / 256 % 4;
    EXPECT_EQ(scales[1 - side], kFp4One << (8 * group));
    EXPECT_EQ(scales[side] & ~(0xFFU << (8 * group)), 0U);
    seen.insert({of.selector, side, group, scales[side] >> (8 * group) & 0xFFU});
  }
  EXPECT_EQ(seen.size(), 2U * 4U * 256U * kFp4Selectors);
}

double code_value(uint32_t code) {
  constexpr double kSizes[8] = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
  return (code & 8U) != 0 ? -kSizes[code & 7U] : kSizes[code & 7U];
}
double scale_value(uint32_t byte) {
  const auto exponent = static_cast<int>(byte >> 3 & 15U);
  const double mantissa = byte & 7U;
  if ((byte & 0x7FU) == 0x7FU) return std::nan("");
  return exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
}

/// Number (row, column) of the product in double, read from registers as the manual draws them.
double by_manual(const Fp4Case& of, int row, int column) {
  const int thread_a = of.selector / kFp4RightThreads;
  const int thread_b = of.selector % kFp4RightThreads;
  const Fp4Lane scale_a = fp4_case_lane(of, row % 8 * 4 + 2 * thread_a + row / 8);
  const Fp4Lane scale_b = fp4_case_lane(of, column * 4 + thread_b);
  const Fp4Lane own = fp4_case_lane(of, row % 8 * 4 + column / 2);
  double sum = own.sums[row / 8 * 2 + column % 2];
  for (int k = 0; k < kFp4Depth; ++k) {
    const Fp4Lane a = fp4_case_lane(of, row % 8 * 4 + k % 32 / 8);
    const Fp4Lane b = fp4_case_lane(of, column * 4 + k % 32 / 8);
    sum += code_value(a.left[row / 8 + k / 32 * 2] >> (4 * (k % 8)) & 15U) *
           code_value(b.right[k / 32] >> (4 * (k % 8)) & 15U) *
           scale_value(scale_a.left_scale >> (k / 16 * 8) & 0xFFU) *
           scale_value(scale_b.right_scale >> (k / 16 * 8) & 0xFFU);
  }
  return sum;
}

/// Sums of all kinds but one are exact, so they are those of double to the bit.
TEST(Fp4Cases, TheHostComputesThem) {
  constexpr int kStep = 97;  // all kinds, selectors, and groups
  for (int number = 0; number < fp4_cases(); number += kStep) {
    const Fp4Case of = fp4_case(number);
    const Fp4Sums found = fp4_on_host(of);
    for (int row = number % 3; row < kFp4Rows; row += 3)
      for (int column = number % 2; column < kFp4Columns; column += 2) {
        const double want = by_manual(of, row, column);
        const double got = found.of[row / 8 * 2 + column % 2][row % 8 * 4 + column / 2];
        if (std::isnan(want))
          EXPECT_TRUE(std::isnan(got)) << number;
        else if (of.kind == Fp4CaseKind::any)
          EXPECT_NEAR(got, want, 128) << number;  // sums of up to 5e8, rounded four times
        else
          EXPECT_EQ(got, want) << number;
      }
  }
}

}  // namespace
}  // namespace nibble::cuda
