// The factor in doubles, by a Cholesky factorisation from the last column to the first.
#include "quantize/rounding/gptq_factor.h"

#include <algorithm>
#include <numeric>

#include "quantize/rounding/nvfp4_block.inl.h"
#include "quantize/rounding/row_rounders.h"

namespace nibble {
namespace {

/// Blocks of 16 columns, those with the largest inputs first; equal ones as they are.
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

void GptqFactor::load_row(const TensorView& weights, int64_t row, float unit, float* out) const {
  std::vector<float> in_file(static_cast<size_t>(cols));
  detail::load_row(weights, row, unit, in_file);
  for (size_t b = 0; b < order.size(); ++b)
    std::copy_n(&in_file[static_cast<size_t>(order[b] * 16)], 16, out + b * 16);
}

SquareMatrix GptqFactor::damped_moment(const InputStatistics& statistics) const {
  const auto n = static_cast<size_t>(cols);
  const double unit = mean_square(statistics) * static_cast<double>(statistics.tokens);
  SquareMatrix h = {.n = n, .values = std::vector<double>(n * n)};
  const auto place = [&](size_t i) { return column(static_cast<int64_t>(i)); };
  for (size_t i = 0; i < n; ++i)
    for (size_t j = i; j < n; ++j)
      h.row(i)[j] = statistics.product(place(i), place(j)) / unit + (i == j ? damping : 0.0);
  return h;
}

std::optional<GptqFactor> make_gptq_factor(const InputStatistics& statistics) {
  GptqFactor out{
      .cols = statistics.cols, .order = block_order(statistics), .upper = {}, .costs = {}};
  for (const double damping : {kDamping, 10 * kDamping, 100 * kDamping}) {
    out.damping = damping;
    SquareMatrix h = out.damped_moment(statistics);
    if (!factorise(h)) continue;
    invert(h);
    out.upper.assign(h.values.begin(), h.values.end());
    out.costs = costs_of(h);
    return out;
  }
  return std::nullopt;
}

}  // namespace nibble
