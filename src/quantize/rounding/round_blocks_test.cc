// The block-weighted search against its definition, and against the plain search in what it is for:
// the error of outputs.
#include <gtest/gtest.h>

#include "quantize/rounding/rounding_cases.h"
#include "quantize/rounding/row_rounders.h"

namespace nibble {
namespace {

constexpr int64_t kCols = 16 * 20, kRows = 48, kTokens = 400;

int first_code(const float* u) {  // of the highest window: at or below amax/8.5
  float amax = 0;
  for (int i = 0; i < 16; ++i) amax = std::max(amax, std::fabs(u[i]));
  int code = 1;
  while (code < 126 && e4m3_to_float(static_cast<uint8_t>(code + 1)) <= amax * (1.0F / 8.5F))
    ++code;
  return code;
}

uint8_t obvious_choice(const float* u, const std::vector<float>& moment) {
  const int top = first_code(u) + 15, bottom = std::max(1, first_code(u) - 16);
  int best = 0;
  float least = 0;
  for (int code = bottom; code <= std::min(top, 126); ++code) {
    float total = 0;
    for (size_t i = 0; i < 16; ++i) {
      float sum = 0;
      for (size_t j = i + 1; j < 16; ++j)
        sum += test::weight_error(u[j], code) * moment[i * 16 + j];
      const float e = test::weight_error(u[i], code);
      total += e * (e * moment[i * 16 + i] + (sum + sum));
    }
    if (best != 0 && total >= least) continue;
    least = total;
    best = code;
  }
  return static_cast<uint8_t>(best);
}

TEST(BlockRounding, EqualsItsDefinitionOnEveryPath) {
  const auto statistics =
      test::gather(test::draw_inputs(kTokens, kCols, 7), kCols, SecondMoment::blocks);
  const double unit = mean_square(statistics) * kTokens;
  std::vector<std::vector<float>> moments(kCols / 16);
  for (int64_t i = 0; i < kCols; ++i)
    for (int64_t j = i / 16 * 16; j < i / 16 * 16 + 16; ++j)
      moments[static_cast<size_t>(i / 16)].push_back(
          static_cast<float>(statistics.product(i, j) / unit + (i == j ? kDamping : 0.0)));
  for (const auto& family : test::weight_families()) {
    const auto weights = test::draw_weights(family, kCols * kRows, 2);
    const int exponent = test::exponent_of(weights);
    const RoundedMatrix truth = test::round_obviously(
        weights, kCols, exponent,
        [&](const float* u, size_t block) { return obvious_choice(u, moments[block]); });
    for (const auto path : {RoundPath::portable, RoundPath::avx2, RoundPath::avx512}) {
      if (!round_path_available(path)) continue;
      const Rounding rounding = prepare_rounding({.algorithm = RoundAlgorithm::blocks,
                                                  .cols = kCols,
                                                  .statistics = &statistics,
                                                  .path = path});
      const auto found = round_matrix(rounding, test::matrix_view(weights, kCols), exponent);
      EXPECT_EQ(found.scales, truth.scales) << family.name << round_path_name(path);
      EXPECT_EQ(found.codes, truth.codes) << family.name << round_path_name(path);
    }
  }
}

TEST(BlockRounding, OutputsAreCloserThanWithThePlainSearch) {
  const auto x = test::draw_inputs(kTokens, kCols, 9);
  const auto weights = test::draw_weights(test::weight_families()[0], kCols * kRows, 3);
  const int exponent = test::exponent_of(weights);
  const auto error = [&](RoundAlgorithm algorithm) {
    const auto statistics = test::gather(x, kCols, moment_needed(algorithm));
    const Rounding rounding =
        prepare_rounding({.algorithm = algorithm, .cols = kCols, .statistics = &statistics});
    const auto matrix = round_matrix(rounding, test::matrix_view(weights, kCols), exponent);
    return test::output_error(weights, test::decoded(matrix, exponent), x, kCols);
  };
  const double plain = error(RoundAlgorithm::search), diagonal = error(RoundAlgorithm::diagonal),
               blocks = error(RoundAlgorithm::blocks), gptq = error(RoundAlgorithm::gptq);
  EXPECT_LT(plain, error(RoundAlgorithm::amax));
  EXPECT_LT(diagonal, plain);
  EXPECT_LT(blocks, diagonal);
  EXPECT_LT(gptq, 0.6 * blocks);
}

}  // namespace
}  // namespace nibble
