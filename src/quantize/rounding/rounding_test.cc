// Rounding where there is nothing good to go by: no statistics, few tokens, inputs that are zero or
// no numbers, weights at the edges of their range. In every case the weights are finite, no scale
// is NaN, and a fallback says why.
#include "quantize/rounding/rounding.h"

#include <gtest/gtest.h>

#include <limits>

#include "quantize/rounding/rounding_cases.h"

namespace nibble {
namespace {

constexpr int64_t kCols = 64, kRows = 24;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

constexpr RoundAlgorithm kWithData[] = {RoundAlgorithm::diagonal, RoundAlgorithm::blocks,
                                        RoundAlgorithm::gptq};

Rounding prepare(RoundAlgorithm algorithm, const InputStatistics* statistics) {
  return prepare_rounding({.algorithm = algorithm, .cols = kCols, .statistics = statistics});
}

TEST(Rounding, NamesAreReadBack) {
  for (const auto algorithm : kRoundAlgorithms)
    EXPECT_EQ(parse_round_algorithm(round_algorithm_name(algorithm)).value(), algorithm);
  const auto unknown = parse_round_algorithm("best");
  ASSERT_FALSE(unknown.ok());
  EXPECT_NE(unknown.error().message.find("four-over-six, diagonal, blocks, gptq"),
            std::string::npos);
}

TEST(Rounding, FallsBackToTheSearchAndSaysWhy) {
  const auto weights = test::draw_weights(test::weight_families()[0], kCols * kRows, 1);
  const int exponent = test::exponent_of(weights);
  const RoundedMatrix search = round_matrix(prepare(RoundAlgorithm::search, nullptr),
                                            test::matrix_view(weights, kCols), exponent);
  for (const auto algorithm : kWithData) {
    const SecondMoment kind = moment_needed(algorithm);
    const auto few = test::gather(test::draw_inputs(12, kCols, 2), kCols, kind);
    const auto zero = test::gather(std::vector<float>(kCols * 400), kCols, kind);
    const auto nan = test::gather(
        std::vector<float>(kCols * 400, std::numeric_limits<float>::quiet_NaN()), kCols, kind);
    EXPECT_EQ(nan.bad_tokens, 400);
    const std::pair<const InputStatistics*, std::string> cases[] = {
        {nullptr, "no calibration"},
        {&few, "12 tokens of 256"},
        {&zero, "its inputs were all zero"},
        {&nan, "0 tokens of 256"}};
    for (const auto& [statistics, why] : cases) {
      const Rounding rounding = prepare(algorithm, statistics);
      EXPECT_EQ(rounding.algorithm, RoundAlgorithm::search);
      EXPECT_EQ(rounding.fallback, why);
      const auto found = round_matrix(rounding, test::matrix_view(weights, kCols), exponent);
      EXPECT_EQ(found.codes, search.codes);
      EXPECT_EQ(found.scales, search.scales);
    }
  }
}

TEST(Rounding, EightBitsAreRoundedWithDataByGptqAlone) {
  for (const auto algorithm : kRoundAlgorithms) {
    const bool gptq = algorithm == RoundAlgorithm::gptq;
    for (const auto format :
         {WeightFormat::fp8_tensor, WeightFormat::fp8_channel, WeightFormat::fp8_block})
      EXPECT_EQ(moment_needed(algorithm, format), gptq ? SecondMoment::full : SecondMoment::none);
    EXPECT_EQ(moment_needed(algorithm, WeightFormat::nvfp4), moment_needed(algorithm));
    EXPECT_EQ(moment_needed(algorithm, WeightFormat::plain), SecondMoment::none);
    const auto statistics =
        test::gather(test::draw_inputs(400, kCols, 2), kCols, moment_needed(algorithm));
    const Fp8Rounding rounding =
        prepare_fp8_rounding({.algorithm = algorithm, .cols = kCols, .statistics = &statistics});
    EXPECT_EQ(rounding.gptq != nullptr, gptq);
    EXPECT_EQ(rounding.fallback, "");
  }
}

TEST(Rounding, EightBitsFallBackAndSayWhy) {
  const auto full = [](std::vector<float> x) { return test::gather(x, kCols, SecondMoment::full); };
  const auto few = full(test::draw_inputs(12, kCols, 2)),
             zero = full(std::vector<float>(kCols * 400));
  struct Case {
    int64_t cols;
    const InputStatistics* statistics;
    std::string_view why;
  };
  const Case cases[] = {{kCols, nullptr, "no calibration"},
                        {kCols, &few, "12 tokens of 256"},
                        {kCols, &zero, "its inputs were all zero"},
                        {kCols + 8, &few, "its 72 columns are no multiple of 16"}};
  for (const auto& [cols, statistics, why] : cases) {
    const Fp8Rounding rounding = prepare_fp8_rounding(
        {.algorithm = RoundAlgorithm::gptq, .cols = cols, .statistics = statistics});
    EXPECT_EQ(rounding.gptq, nullptr);
    EXPECT_EQ(rounding.fallback, why);
  }
}

struct InputCase {
  std::string_view name;
  std::function<float(size_t, float)> change;  // index, drawn -> input
};

TEST(Rounding, NeverPoisonedTable) {
  const InputCase inputs[] = {
      {"ordinary", [](size_t, float x) { return x; }},
      {"tiny", [](size_t, float x) { return x * 1e-38F; }},
      {"huge", [](size_t, float x) { return std::isfinite(x * 1e37F) ? x * 1e37F : 1e38F; }},
      {"one token", [](size_t i, float x) { return i < kCols ? x : 0.0F; }},
      {"one column", [](size_t i, float x) { return i % kCols == 7 ? x : 0.0F; }},
      {"equal columns", [](size_t i, float) { return static_cast<float>(i / kCols % 7); }},
      {"some NaN", [](size_t i, float x) { return i % 997 == 0 ? std::nanf("") : x; }},
      {"some infinite", [](size_t i, float x) { return i % 997 == 0 ? kInfinity : x; }},
      {"one huge", [](size_t i, float x) { return i == 1000 ? 3e38F : x; }},
  };
  const auto drawn = test::draw_inputs(400, kCols, 3);
  for (const auto& input : inputs) {
    std::vector<float> x;
    for (size_t i = 0; i < drawn.size(); ++i) x.push_back(input.change(i, drawn[i]));
    for (const auto& family : test::weight_families()) {
      const auto weights = test::draw_weights(family, kCols * kRows, 4);
      const int exponent = test::exponent_of(weights);
      for (const auto algorithm : kRoundAlgorithms) {
        const auto statistics = test::gather(x, kCols, moment_needed(algorithm));
        const Rounding rounding = prepare(algorithm, &statistics);
        const auto found = round_matrix(rounding, test::matrix_view(weights, kCols), exponent);
        for (const uint8_t scale : found.scales)
          ASSERT_TRUE(scale >= 1 && scale <= 0x7E) << input.name << " " << family.name;
        for (const float w : test::decoded(found, exponent))
          ASSERT_TRUE(std::isfinite(w)) << input.name << " " << family.name;
        ASSERT_TRUE(std::isfinite(found.statistics.error_squares)) << input.name << family.name;
      }
    }
  }
}

TEST(Rounding, ZeroMatricesStayZeroWithEveryAlgorithm) {
  const std::vector<float> weights(kCols * kRows, -0.0F);
  const auto x = test::draw_inputs(400, kCols, 3);
  for (const auto algorithm : kRoundAlgorithms) {
    const auto statistics = test::gather(x, kCols, moment_needed(algorithm));
    const auto found =
        round_matrix(prepare(algorithm, &statistics), test::matrix_view(weights, kCols), 0);
    EXPECT_EQ(found.codes, std::vector<uint8_t>(found.codes.size()));
    EXPECT_EQ(found.scales, std::vector<uint8_t>(found.scales.size(), kZeroBlockScale));
    EXPECT_EQ(found.statistics.zero_blocks, kCols * kRows / 16);
  }
}

TEST(Rounding, ADeadColumnCostsNothingElse) {
  // Column 3 never had an input: it is rounded as a weight that may matter, not thrown away.
  std::vector<float> x = test::draw_inputs(400, kCols, 5);
  for (size_t i = 3; i < x.size(); i += kCols) x[i] = 0.0F;
  const auto weights = test::draw_weights(test::weight_families()[0], kCols * kRows, 6);
  const int exponent = test::exponent_of(weights);
  for (const auto algorithm : kWithData) {
    const auto statistics = test::gather(x, kCols, moment_needed(algorithm));
    const auto out = test::decoded(
        round_matrix(prepare(algorithm, &statistics), test::matrix_view(weights, kCols), exponent),
        exponent);
    double error = 0, square = 0;
    for (size_t i = 3; i < out.size(); i += kCols) {
      error += std::pow(static_cast<double>(out[i]) - static_cast<double>(weights[i]), 2);
      square += std::pow(static_cast<double>(weights[i]), 2);
    }
    EXPECT_LT(error, 0.2 * square) << round_algorithm_name(algorithm);
  }
}

}  // namespace
}  // namespace nibble
