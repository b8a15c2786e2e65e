// The weighted search against all 126 scale codes tried one by one, on every instruction set.
#include <gtest/gtest.h>

#include <limits>

#include "quantize/rounding/rounding_cases.h"
#include "quantize/rounding/row_rounders.h"

namespace nibble {
namespace {

constexpr int64_t kCols = 16 * 24, kRows = 60;

uint8_t exhaustive(const float* u, const float* weights) {
  int best = 1;
  float least = std::numeric_limits<float>::infinity();
  for (int code = 1; code <= 126; ++code) {
    float total = 0;
    for (int i = 0; i < 16; ++i) {
      const float e = test::weight_error(u[i], code);
      total += e * e * weights[i];
    }
    if (total >= least) continue;
    least = total;
    best = code;
  }
  return static_cast<uint8_t>(best);
}

void compare(const std::vector<float>& weights, const InputStatistics& statistics,
             std::string_view name) {
  const int exponent = test::exponent_of(weights);
  const auto columns = column_weights(statistics);
  const RoundedMatrix truth = test::round_obviously(
      weights, kCols, exponent,
      [&](const float* u, size_t block) { return exhaustive(u, &columns[block * 16]); });
  for (const auto path : {RoundPath::portable, RoundPath::avx2, RoundPath::avx512}) {
    if (!round_path_available(path)) continue;
    const Rounding rounding = prepare_rounding({.algorithm = RoundAlgorithm::diagonal,
                                                .cols = kCols,
                                                .statistics = &statistics,
                                                .path = path});
    ASSERT_EQ(rounding.fallback, "");
    const RoundedMatrix found = round_matrix(rounding, test::matrix_view(weights, kCols), exponent);
    EXPECT_EQ(found.scales, truth.scales) << name << " " << round_path_name(path);
    EXPECT_EQ(found.codes, truth.codes) << name << " " << round_path_name(path);
  }
}

TEST(DiagonalRounding, EqualsAllCodesTriedOneByOne) {
  const auto x = test::draw_inputs(300, kCols, 7);
  const auto statistics = test::gather(x, kCols, SecondMoment::diagonal);
  for (const auto& family : test::weight_families())
    compare(test::draw_weights(family, kCols * kRows, 1), statistics, family.name);
}

TEST(DiagonalRounding, SeesFarBelowAmaxWhenTheLargestWeightHardlyCounts) {
  // The largest weight of each block meets almost no input: the best scale ignores it.
  std::vector<float> x(300 * kCols);
  test::Generator random(2);
  for (size_t i = 0; i < x.size(); ++i) x[i] = i % 16 == 3 ? 0.0F : 30.0F * test::gaussian(random);
  auto weights = test::draw_weights(test::weight_families()[0], kCols * kRows, 3);
  for (size_t i = 3; i < weights.size(); i += 16) weights[i] = i % 32 == 3 ? 0.12F : 0.16F;
  const auto statistics = test::gather(x, kCols, SecondMoment::diagonal);
  compare(weights, statistics, "outlier");
  const int exponent = test::exponent_of(weights);
  const auto error = [&](RoundAlgorithm algorithm) {
    const Rounding rounding =
        prepare_rounding({.algorithm = algorithm, .cols = kCols, .statistics = &statistics});
    const auto matrix = round_matrix(rounding, test::matrix_view(weights, kCols), exponent);
    return test::output_error(weights, test::decoded(matrix, exponent), x, kCols);
  };
  EXPECT_LT(error(RoundAlgorithm::diagonal), 0.8 * error(RoundAlgorithm::search));
}

}  // namespace
}  // namespace nibble
