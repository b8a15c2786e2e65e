// The descent after GPTQ: what it may never do, where it ends, and that its bytes depend on nothing
// but the row. Where it leads is held against numpy in rounding_golden_test.cc.
#include "quantize/rounding/gptq_descent.h"

#include <gtest/gtest.h>

#include "quantize/rounding/rounding_cases.h"
#include "quantize/rounding/row_rounders.h"

namespace nibble {
namespace {

constexpr int64_t kCols = 16 * 10, kRows = 21, kTokens = 400;

struct Rounded {
  RoundedMatrix matrix;
  std::vector<float> values;
};

class GptqDescent : public ::testing::Test {
 protected:
  GptqDescent()
      : statistics_(test::gather(test::draw_inputs(kTokens, kCols, 8), kCols, SecondMoment::full)) {
    const double unit = mean_square(statistics_) * static_cast<double>(kTokens);
    for (int64_t i = 0; i < kCols; ++i)
      for (int64_t j = 0; j < kCols; ++j)
        moment_.push_back(statistics_.product(i, j) / unit + (i == j ? kDamping : 0.0));
  }

  Rounded rounded(const std::vector<float>& weights, int sweeps,
                  RoundPath path = best_round_path()) const {
    const int exponent = test::exponent_of(weights);
    const Rounding rounding = {.rows = make_gptq_rounder(statistics_, path, sweeps)};
    Rounded out = {.matrix = round_matrix(rounding, test::matrix_view(weights, kCols), exponent),
                   .values = {}};
    out.values = test::decoded(out.matrix, exponent);
    return out;
  }

  /// H (q - w) of one row.
  std::vector<double> gradient(const std::vector<float>& w, const std::vector<float>& q,
                               size_t row) const {
    std::vector<double> out(kCols);
    for (size_t i = 0; i < kCols; ++i)
      for (size_t j = 0; j < kCols; ++j)
        out[i] += moment_[i * kCols + j] * (static_cast<double>(q[row * kCols + j]) -
                                            static_cast<double>(w[row * kCols + j]));
    return out;
  }

  double loss(const std::vector<float>& w, const std::vector<float>& q, size_t row) const {
    const auto g = gradient(w, q, row);
    double total = 0;
    for (size_t i = 0; i < kCols; ++i)
      total += g[i] *
               (static_cast<double>(q[row * kCols + i]) - static_cast<double>(w[row * kCols + i]));
    return total;
  }

  InputStatistics statistics_;
  std::vector<double> moment_;  // H [kCols, kCols], damped
};

TEST_F(GptqDescent, NeverRaisesTheLossOfARow) {
  for (const auto& family : test::weight_families()) {
    const auto weights = test::draw_weights(family, kCols * kRows, 4);
    std::vector<double> before;
    for (const int sweeps : {0, 1, 2, 3, 8}) {
      const auto values = rounded(weights, sweeps).values;
      for (size_t row = 0; row < kRows; ++row) {
        const double now = loss(weights, values, row);
        if (sweeps == 0) {
          before.push_back(now);
          continue;
        }
        EXPECT_LE(now, before[row] * (1 + 1e-12)) << family.name << " " << row << " " << sweeps;
        before[row] = now;
      }
    }
  }
}

TEST_F(GptqDescent, LowersTheLossByAlmostATwentieth) {
  const auto weights = test::draw_weights(test::weight_families()[0], kCols * kRows, 4);
  const auto gptq = rounded(weights, 0).values, descended = rounded(weights, kDescentSweeps).values;
  const auto once = rounded(weights, 1).values;
  double before = 0, first = 0, after = 0;
  for (size_t row = 0; row < kRows; ++row) {
    before += loss(weights, gptq, row);
    first += loss(weights, once, row);
    after += loss(weights, descended, row);
  }
  EXPECT_LT(first, before);
  EXPECT_LT(after, 0.96 * before);
}

/// Every other value of a code, everything else as it is.
TEST_F(GptqDescent, EndsWhereNoCodeCanGain) {
  const auto weights = test::draw_weights(test::weight_families()[0], kCols * kRows, 4);
  const Rounded end = rounded(weights, 100);
  const double unit = std::ldexp(1.0, test::exponent_of(weights));
  for (size_t row = 0; row < kRows; ++row) {
    const auto g = gradient(weights, end.values, row);
    for (size_t i = 0; i < kCols; ++i) {
      const double h = moment_[i * kCols + i];
      const double scale =
          static_cast<double>(e4m3_to_float(end.matrix.scales[(row * kCols + i) / 16])) * unit;
      for (uint8_t code = 0; code < 16; ++code) {
        const double delta = static_cast<double>(e2m1_to_float(code)) * scale -
                             static_cast<double>(end.values[row * kCols + i]);
        EXPECT_GE(2 * delta * g[i] + delta * delta * h, -0.005 * delta * delta * h)
            << row << " " << i << " " << static_cast<int>(code);
      }
    }
  }
}

TEST_F(GptqDescent, GivesTheSameBytesOnEveryPathAndInPieces) {
  for (const auto& family : test::weight_families()) {
    const auto weights = test::draw_weights(family, kCols * kRows, 4);
    const Rounded whole = rounded(weights, kDescentSweeps, RoundPath::portable);
    for (const auto path : {RoundPath::avx2, RoundPath::avx512}) {
      if (!round_path_available(path)) continue;
      const Rounded other = rounded(weights, kDescentSweeps, path);
      EXPECT_EQ(other.matrix.codes, whole.matrix.codes) << family.name << round_path_name(path);
      EXPECT_EQ(other.matrix.scales, whole.matrix.scales) << family.name << round_path_name(path);
    }
    const Rounding rounding = {.rows = make_gptq_rounder(statistics_, best_round_path())};
    const int exponent = test::exponent_of(weights);
    std::vector<uint8_t> codes, scales;
    for (size_t n = 0; n < weights.size(); n += 3 * kCols) {
      const std::vector<float> piece(weights.begin() + static_cast<long>(n),
                                     weights.begin() + static_cast<long>(n + 3 * kCols));
      const auto part = round_matrix(rounding, test::matrix_view(piece, kCols), exponent);
      codes.insert(codes.end(), part.codes.begin(), part.codes.end());
      scales.insert(scales.end(), part.scales.begin(), part.scales.end());
    }
    EXPECT_EQ(codes, whole.matrix.codes) << family.name;
    EXPECT_EQ(scales, whole.matrix.scales) << family.name;
  }
}

}  // namespace
}  // namespace nibble
