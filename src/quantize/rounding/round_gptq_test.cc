// GPTQ against two plain ones: the same arithmetic without tiles and vectors, byte for byte; and
// the textbook form in double, which inverts anew after each column, in what it achieves. The
// descent that follows is left out: gptq_descent_test.cc.
#include <gtest/gtest.h>

#include <numeric>

#include "quantize/rounding/rounding_cases.h"
#include "quantize/rounding/row_rounders.h"

namespace nibble {
namespace {

constexpr size_t kCols = 16 * 5;
constexpr int64_t kRows = 21, kTokens = 300;
using Matrix = std::vector<double>;  // [kCols, kCols]

std::vector<size_t> column_order(const InputStatistics& statistics) {
  std::vector<size_t> order(kCols / 16), columns;
  std::iota(order.begin(), order.end(), 0);
  const auto squares = [&](size_t block) {
    double total = 0;
    for (size_t i = 0; i < 16; ++i)
      total += statistics.square(static_cast<int64_t>(block * 16 + i));
    return total;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return squares(a) > squares(b); });
  for (const size_t block : order)
    for (size_t i = 0; i < 16; ++i) columns.push_back(block * 16 + i);
  return columns;
}

Matrix damped_moment(const InputStatistics& statistics) {
  const auto order = column_order(statistics);
  const double unit = mean_square(statistics) * static_cast<double>(statistics.tokens);
  Matrix h(kCols * kCols);
  for (size_t i = 0; i < kCols; ++i)
    for (size_t j = 0; j < kCols; ++j)
      h[i * kCols + j] =
          statistics.product(static_cast<int64_t>(order[i]), static_cast<int64_t>(order[j])) /
              unit +
          (i == j ? kDamping : 0.0);
  return h;
}

/// Gauss and Jordan, of the columns from `first` on.
Matrix inverse_from(const Matrix& h, size_t first) {
  const size_t n = kCols - first;
  Matrix a(n * 2 * n);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) a[i * 2 * n + j] = h[(first + i) * kCols + first + j];
    a[i * 2 * n + n + i] = 1.0;
  }
  for (size_t p = 0; p < n; ++p) {
    const double pivot = a[p * 2 * n + p];
    for (size_t j = 0; j < 2 * n; ++j) a[p * 2 * n + j] /= pivot;
    for (size_t i = 0; i < n; ++i) {
      const double factor = a[i * 2 * n + p];
      if (i == p) continue;
      for (size_t j = 0; j < 2 * n; ++j) a[i * 2 * n + j] -= factor * a[p * 2 * n + j];
    }
  }
  Matrix out(n * n);
  for (size_t i = 0; i < n; ++i)
    for (size_t j = 0; j < n; ++j) out[i * n + j] = a[i * 2 * n + n + j];
  return out;
}

/// Row j of U with U^T U = H^-1, from the inverse of what is left at column j: its first row over
/// the root of its first element.
Matrix textbook_factor(const Matrix& h) {
  Matrix u(kCols * kCols);
  for (size_t j = 0; j < kCols; ++j) {
    const Matrix inverse = inverse_from(h, j);
    for (size_t k = j; k < kCols; ++k) u[j * kCols + k] = inverse[k - j] / std::sqrt(inverse[0]);
  }
  return u;
}

uint8_t search_weighted(const float* u, const float* weights) {
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

/// One row over 2^exponent, columns in order, to decoded values over 2^exponent in file order.
template <typename Real>
std::vector<float> obvious_row(const std::vector<float>& row, const Matrix& factor,
                               const std::vector<size_t>& order) {
  std::vector<Real> u(kCols), f(factor.begin(), factor.end());
  for (size_t i = 0; i < kCols; ++i) u[i] = row[order[i]];
  double mean = 0;
  for (size_t i = 0; i < kCols; ++i) mean += 1.0 / (factor[i * kCols + i] * factor[i * kCols + i]);
  std::vector<float> weights, out(kCols);
  for (size_t i = 0; i < kCols; ++i)
    weights.push_back(static_cast<float>(static_cast<double>(kCols) /
                                         (factor[i * kCols + i] * factor[i * kCols + i]) / mean));
  float scale = 0;
  for (size_t j = 0; j < kCols; ++j) {
    if (j % 16 == 0) {
      float block[16];
      for (size_t i = 0; i < 16; ++i) block[i] = static_cast<float>(u[j + i]);
      scale = e4m3_to_float(search_weighted(block, &weights[j]));
    }
    const float q = e2m1_to_float(float_to_e2m1(static_cast<float>(u[j]) / scale)) * scale;
    const Real error = (u[j] - static_cast<Real>(q)) / f[j * kCols + j];
    for (size_t k = j + 1; k < kCols; ++k) u[k] -= error * f[j * kCols + k];
    out[order[j]] = q;
  }
  return out;
}

template <typename Real>
std::vector<float> obvious(const std::vector<float>& weights, int exponent, const Matrix& factor,
                           const std::vector<size_t>& order) {
  std::vector<float> out;
  for (size_t n = 0; n < weights.size(); n += kCols) {
    std::vector<float> row;
    for (size_t i = 0; i < kCols; ++i) row.push_back(std::ldexp(weights[n + i], -exponent));
    for (const float value : obvious_row<Real>(row, factor, order))
      out.push_back(std::ldexp(value, exponent));
  }
  return out;
}

std::vector<float> rounded(const std::vector<float>& weights, const InputStatistics& statistics,
                           RoundPath path, size_t rows_at_once) {
  const int exponent = test::exponent_of(weights);
  const Rounding rounding = {.rows = make_gptq_rounder(statistics, path, 0)};
  std::vector<float> out;
  for (size_t n = 0; n < weights.size(); n += rows_at_once * kCols) {
    const size_t end = std::min(weights.size(), n + rows_at_once * kCols);
    const std::vector<float> piece(weights.begin() + static_cast<long>(n),
                                   weights.begin() + static_cast<long>(end));
    const auto matrix = round_matrix(rounding, test::matrix_view(piece, kCols), exponent);
    for (const float value : test::decoded(matrix, exponent)) out.push_back(value);
  }
  return out;
}

/// As in round_gptq.cc, one number at a time: H = M M^T, U = M^-1.
Matrix reversed_factor(Matrix h) {
  for (size_t k = kCols; k-- > 0;) {
    const double root = std::sqrt(h[k * kCols + k]);
    for (size_t i = 0; i < k; ++i) h[i * kCols + k] /= root;
    h[k * kCols + k] = root;
    for (size_t i = 0; i < k; ++i)
      for (size_t j = i; j < k; ++j) h[i * kCols + j] -= h[i * kCols + k] * h[j * kCols + k];
  }
  Matrix u(kCols * kCols);
  for (size_t i = kCols; i-- > 0;) {
    u[i * kCols + i] = 1.0;
    for (size_t k = i + 1; k < kCols; ++k)
      for (size_t j = k; j < kCols; ++j) u[i * kCols + j] -= h[i * kCols + k] * u[k * kCols + j];
    const double pivot = 1.0 / h[i * kCols + i];
    for (size_t j = i; j < kCols; ++j) u[i * kCols + j] *= pivot;
  }
  return u;
}

TEST(Gptq, EqualsThePlainFormOnEveryPathAndInPieces) {
  const auto statistics =
      test::gather(test::draw_inputs(kTokens, kCols, 5), kCols, SecondMoment::full);
  const auto order = column_order(statistics);
  const Matrix factor = reversed_factor(damped_moment(statistics));
  for (const auto& family : test::weight_families()) {
    const auto weights = test::draw_weights(family, kCols * kRows, 4);
    const auto truth = obvious<float>(weights, test::exponent_of(weights), factor, order);
    for (const auto path : {RoundPath::portable, RoundPath::avx2, RoundPath::avx512}) {
      if (!round_path_available(path)) continue;
      EXPECT_EQ(rounded(weights, statistics, path, kRows), truth)
          << family.name << round_path_name(path);
    }
    EXPECT_EQ(rounded(weights, statistics, best_round_path(), 3), truth) << family.name;
  }
}

TEST(Gptq, TheFactorIsTheTextbooks) {
  const auto statistics =
      test::gather(test::draw_inputs(kTokens, kCols, 5), kCols, SecondMoment::full);
  const Matrix h = damped_moment(statistics);
  const Matrix truth = textbook_factor(h), found = reversed_factor(h);
  for (size_t i = 0; i < truth.size(); ++i)
    ASSERT_NEAR(found[i], truth[i], 1e-9 * std::fabs(truth[i]) + 1e-9);
}

TEST(Gptq, AchievesWhatTheTextbookInDoubleAchieves) {
  const auto x = test::draw_inputs(kTokens, kCols, 6);
  const auto statistics = test::gather(x, kCols, SecondMoment::full);
  const auto weights = test::draw_weights(test::weight_families()[0], kCols * 40, 4);
  const int exponent = test::exponent_of(weights);
  const auto truth = obvious<double>(weights, exponent, textbook_factor(damped_moment(statistics)),
                                     column_order(statistics));
  const auto found = rounded(weights, statistics, best_round_path(), 40);
  const double best = test::output_error(weights, truth, x, kCols);
  EXPECT_NEAR(test::output_error(weights, found, x, kCols), best, 0.02 * best);
  size_t equal = 0;
  for (size_t i = 0; i < truth.size(); ++i) equal += truth[i] == found[i] ? 1U : 0U;
  EXPECT_GT(equal, truth.size() * 95 / 100);
  const auto plain =
      round_matrix(prepare_rounding({.cols = kCols}), test::matrix_view(weights, kCols), exponent);
  EXPECT_LT(best, 0.6 * test::output_error(weights, test::decoded(plain, exponent), x, kCols));
}

}  // namespace
}  // namespace nibble
