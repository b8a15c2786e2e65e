// The factor in doubles, by a Cholesky factorisation from the last column to the first.
#include "quantize/rounding/gptq_factor.h"

#include <algorithm>
#include <numeric>

#include "quantize/rounding/nvfp4_block.inl.h"
#include "quantize/rounding/row_rounders.h"
#include "quantize/rounding/square_matrix.h"

namespace nibble {
namespace {

SquareMatrix upper_triangle(const DampedMoment& moment, size_t n) {
  SquareMatrix h = {.n = n, .values = std::vector<double>(n * n)};
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i; j < n; ++j) h.row(i)[j] = moment.at(i, j);
  return h;
}

/// Copies the upper triangle into the lower one.
void keep_transposed(SquareMatrix& m) {
  for (size_t i = 0; i < m.n; ++i)
    for (size_t j = i + 1; j < m.n; ++j) m.row(j)[i] = m.row(i)[j];
}

std::vector<float> costs_of(const SquareMatrix& upper) {
  const auto cost = [&](size_t i) { return 1.0 / (upper.row(i)[i] * upper.row(i)[i]); };
  double total = 0;
  for (size_t i = 0; i < upper.n; ++i) total += cost(i);
  std::vector<float> costs;
  for (size_t i = 0; i < upper.n; ++i)
    costs.push_back(static_cast<float>(static_cast<double>(upper.n) * cost(i) / total));
  return costs;
}

}  // namespace

std::vector<int64_t> block_order(const InputStatistics& statistics) {
  const auto blocks = static_cast<size_t>(statistics.cols / 16);
  std::vector<double> squares(blocks);
  for (int64_t i = 0; i < statistics.cols; ++i)
    squares[static_cast<size_t>(i / 16)] += statistics.square(i);
  std::vector<int64_t> order(blocks);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return squares[static_cast<size_t>(a)] > squares[static_cast<size_t>(b)];
  });
  return order;
}

void GptqFactor::load_row(const TensorView& weights, int64_t row, float unit, float* out) const {
  std::vector<float> in_file(static_cast<size_t>(cols));
  detail::load_row(weights, row, unit, in_file);
  for (size_t b = 0; b < order.size(); ++b)
    std::copy_n(&in_file[static_cast<size_t>(order[b] * 16)], 16, out + b * 16);
}

DampedMoment::DampedMoment(const GptqFactor& factor, const InputStatistics& statistics)
    : factor_(factor),
      statistics_(statistics),
      unit_(mean_square(statistics) * static_cast<double>(statistics.tokens)) {}

double DampedMoment::at(size_t i, size_t j) const {
  const double product = statistics_.product(factor_.column(static_cast<int64_t>(i)),
                                             factor_.column(static_cast<int64_t>(j)));
  return product / unit_ + (i == j ? factor_.damping : 0.0);
}

std::optional<GptqFactor> make_gptq_factor(const InputStatistics& statistics) {
  GptqFactor out{
      .cols = statistics.cols, .order = block_order(statistics), .factors = {}, .costs = {}};
  for (const double damping : kDampings) {
    out.damping = damping;
    SquareMatrix h = upper_triangle(DampedMoment(out, statistics), static_cast<size_t>(out.cols));
    if (!factorise(h)) continue;
    keep_transposed(h);
    invert(h);
    out.factors.assign(h.values.begin(), h.values.end());
    out.costs = costs_of(h);
    return out;
  }
  return std::nullopt;
}

}  // namespace nibble
