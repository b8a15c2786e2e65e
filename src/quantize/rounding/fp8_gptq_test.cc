// GPTQ to FP8: byte for byte the plain loop, under every kind of scale, on every instruction set
// and in pieces. What it achieves is held against numpy in rounding_golden_test.cc.
#include "quantize/rounding/fp8_gptq.h"

#include <gtest/gtest.h>

#include "quantize/rounding/fp8_round.h"
#include "quantize/rounding/rounding_cases.h"
#include "tensor/fp8.h"

namespace nibble {
namespace {

constexpr int64_t kCols = 16 * 10, kTiles = 2, kRows = 21, kTokens = 400;

enum class Kind : uint8_t { tensor, channel, tile };
constexpr Kind kKinds[] = {Kind::tensor, Kind::channel, Kind::tile};

struct Rounded {
  std::vector<uint8_t> codes = std::vector<uint8_t>(kCols * kRows);
  std::vector<float> scales = {};
  RoundStatistics statistics = {};

  Fp8Scales scales_from(Kind kind, int64_t row) const {
    const auto all = std::span(scales);
    if (kind == Kind::tensor) return {.values = all};
    if (kind == Kind::tile) return {.values = all, .per_tile = 1};
    return {.values = all.subspan(static_cast<size_t>(row)), .per_row = 1};
  }
};

/// Scales, and codes one by one, as without data.
Rounded plain(const std::vector<float>& weights, Kind kind) {
  Rounded out;
  const TensorView view = test::matrix_view(weights, kCols);
  if (kind == Kind::tensor) {
    out.scales = {fp8_scale(largest_magnitude(view.data, DType::f32, kCols * kRows))};
    out.statistics = round_fp8_rows(view, out.scales[0], out.codes);
  } else if (kind == Kind::channel) {
    out.scales.resize(kRows);
    out.statistics = round_fp8_channels(view, out.codes, out.scales);
  } else {
    out.scales.resize(kTiles);
    out.statistics = round_fp8_band(view, out.codes, out.scales);
  }
  return out;
}

/// One row, a weight at a time, with the conversions of float_formats.h.
std::vector<uint8_t> obvious_row(const float* weights, const Fp8Scales& scales,
                                 const GptqFactor& factor) {
  float most = 0;
  for (int64_t k = 0; k < kCols; ++k) most = std::max(most, scales.at(0, k));
  const int exponent = std::max(std::ilogb(most), -120);
  const auto n = static_cast<size_t>(kCols);
  std::vector<float> u(n);
  for (size_t i = 0; i < n; ++i)
    u[i] = std::ldexp(weights[factor.column(static_cast<int64_t>(i))], -exponent);
  std::vector<uint8_t> codes(n);
  for (size_t j = 0; j < n; ++j) {
    const int64_t column = factor.column(static_cast<int64_t>(j));
    const float scale = std::max(std::ldexp(scales.at(0, column), -exponent), 0x1p-100F);
    const uint8_t code = float_to_e4m3(u[j] / scale + 0.0F);
    const float error = (u[j] - e4m3_to_float(code) * scale) / factor.factors[j * n + j];
    for (size_t k = j + 1; k < n; ++k) u[k] -= error * factor.factors[j * n + k];
    codes[static_cast<size_t>(column)] = code;
  }
  return codes;
}

/// In pieces of so many rows.
std::vector<uint8_t> rounded(const std::vector<float>& weights, const Rounded& before, Kind kind,
                             const Fp8GptqRounder& rounder, int64_t rows_at_once) {
  std::vector<uint8_t> codes = before.codes;
  for (int64_t row = 0; row < kRows; row += rows_at_once) {
    const int64_t rows = std::min(rows_at_once, kRows - row);
    const TensorView piece = {reinterpret_cast<const std::byte*>(weights.data() + row * kCols),
                              DType::f32, Shape{rows, kCols}};
    rounder.round(piece, before.scales_from(kind, row),
                  std::span(codes).subspan(static_cast<size_t>(row * kCols),
                                           static_cast<size_t>(rows * kCols)));
  }
  return codes;
}

GptqFactor drawn_factor() {
  return make_gptq_factor(
             test::gather(test::draw_inputs(kTokens, kCols, 5), kCols, SecondMoment::full))
      .value();
}

TEST(Fp8Gptq, EqualsThePlainLoopOnEveryPathAndInPieces) {
  const GptqFactor factor = drawn_factor();
  for (const auto& family : test::weight_families())
    for (const Kind kind : kKinds) {
      const auto weights = test::draw_weights(family, kCols * kRows, 4);
      const Rounded before = plain(weights, kind);
      std::vector<uint8_t> truth;
      for (int64_t row = 0; row < kRows; ++row)
        for (const uint8_t code :
             obvious_row(weights.data() + row * kCols, before.scales_from(kind, row), factor)) {
          ASSERT_NE(code & 0x7F, 0x7F) << family.name << " row " << row;
          truth.push_back(code);
        }
      for (const auto path : {RoundPath::portable, RoundPath::avx2, RoundPath::avx512}) {
        if (!round_path_available(path)) continue;
        const Fp8GptqRounder rounder(factor, path);
        EXPECT_EQ(rounded(weights, before, kind, rounder, kRows), truth)
            << family.name << " " << round_path_name(path);
        EXPECT_EQ(rounded(weights, before, kind, rounder, 3), truth) << family.name;
      }
    }
}

TEST(Fp8Gptq, OutputsComeOutNearerAndTheErrorReturnedIsThatOfTheWeights) {
  const auto x = test::draw_inputs(kTokens, kCols, 5);
  const auto weights = test::draw_weights(test::weight_families()[0], kCols * kRows, 6);
  for (const Kind kind : kKinds) {
    const Rounded before = plain(weights, kind);
    std::vector<uint8_t> codes = before.codes;
    const double error =
        Fp8GptqRounder(drawn_factor(), best_round_path())
            .round(test::matrix_view(weights, kCols), before.scales_from(kind, 0), codes);
    const auto values = [&](const std::vector<uint8_t>& from) {
      std::vector<float> out;
      const Fp8Scales scales = before.scales_from(kind, 0);
      for (int64_t i = 0; i < kRows * kCols; ++i)
        out.push_back(e4m3_to_float(from[static_cast<size_t>(i)]) *
                      scales.at(i / kCols, i % kCols));
      return out;
    };
    double squares = 0;
    const auto now = values(codes);
    for (size_t i = 0; i < now.size(); ++i)
      squares += std::pow(static_cast<double>(now[i]) - static_cast<double>(weights[i]), 2);
    EXPECT_NEAR(error, squares, 1e-5 * squares);
    EXPECT_GT(error, before.statistics.error_squares);
    EXPECT_LT(test::output_error(weights, now, x, kCols),
              0.6 * test::output_error(weights, values(before.codes), x, kCols));
  }
}

}  // namespace
}  // namespace nibble
