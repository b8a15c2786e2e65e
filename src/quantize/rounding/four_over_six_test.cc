// Four-over-six: of two candidates the better one, on every instruction set.
#include <gtest/gtest.h>

#include "quantize/rounding/rounding_cases.h"

namespace nibble {
namespace {

uint8_t nearest_code(float value) {
  const uint8_t code = float_to_e4m3(value);
  return code == 0 ? uint8_t{1} : code;
}

float block_error(const float* u, uint8_t code) {
  float total = 0;
  for (int i = 0; i < 16; ++i) {
    const float e = test::weight_error(u[i], code);
    total += e * e;
  }
  return total;
}

uint8_t obvious_choice(const float* u, size_t) {
  float amax = 0;
  for (int i = 0; i < 16; ++i) amax = std::max(amax, std::fabs(u[i]));
  const uint8_t six = nearest_code(amax / 6.0F), four = nearest_code(amax / 4.0F);
  return block_error(u, four) < block_error(u, six) ? four : six;
}

TEST(FourOverSix, IsTheBetterOfBothCandidatesOnEveryPath) {
  constexpr int64_t kCols = 16 * 50;
  for (const auto& family : test::weight_families()) {
    const auto weights = test::draw_weights(family, kCols * 80, 1);
    const int exponent = test::exponent_of(weights);
    const RoundedMatrix truth = test::round_obviously(weights, kCols, exponent, obvious_choice);
    for (const auto path : {RoundPath::portable, RoundPath::avx2, RoundPath::avx512}) {
      if (!round_path_available(path)) continue;
      const Rounding rounding = prepare_rounding(
          {.algorithm = RoundAlgorithm::four_over_six, .cols = kCols, .path = path});
      const RoundedMatrix found =
          round_matrix(rounding, test::matrix_view(weights, kCols), exponent);
      EXPECT_EQ(found.scales, truth.scales) << family.name << round_path_name(path);
      EXPECT_EQ(found.codes, truth.codes) << family.name << round_path_name(path);
    }
  }
}

TEST(FourOverSix, LiesBetweenAmaxAndTheSearchOnGaussianWeights) {
  constexpr int64_t kCols = 1600;
  const auto weights = test::draw_weights(test::weight_families()[0], kCols * 200, 6);
  const int exponent = test::exponent_of(weights);
  const auto error = [&](RoundAlgorithm algorithm) {
    const auto s = round_matrix(prepare_rounding({.algorithm = algorithm, .cols = kCols}),
                                test::matrix_view(weights, kCols), exponent)
                       .statistics;
    return s.error_squares / s.weight_squares;
  };
  EXPECT_NEAR(error(RoundAlgorithm::four_over_six), 7.56e-3, 0.06e-3);
  EXPECT_LT(error(RoundAlgorithm::search), error(RoundAlgorithm::four_over_six));
  EXPECT_LT(error(RoundAlgorithm::four_over_six), error(RoundAlgorithm::amax));
}

}  // namespace
}  // namespace nibble
