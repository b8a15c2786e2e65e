// Squares that are no finite numbers count as zero, as do rows whose inputs are none.
#include "quantize/gradient/gradient_squares.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace nibble::gradient {
namespace {

double finite_square(const float* x, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return std::isfinite(sum) ? sum : 0.0;
}

/// True if the tokens are 0, 1, 2, ..., so that they need no list.
bool is_counted_through(const std::vector<int32_t>& tokens) {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] != static_cast<int32_t>(i)) return false;
  return true;
}

}  // namespace

void GradientSquares::add(const LinearSource& linear, const Rows& input, const Rows& gradient,
                          std::span<const int32_t> rows, const Place& place) {
  if (!wants_(linear.module)) return;
  std::vector<double> sizes, squares;
  for (int64_t r = 0; r < gradient.count; ++r) {
    sizes.push_back(finite_square(input.row(r), input.width));
    squares.push_back(finite_square(gradient.row(r), gradient.width));
  }
  add({.linear = linear, .rows = rows, .inputs = sizes, .gradients = squares}, place);
}

void GradientSquares::add(const LinearSquares& squares, const Place& place) {
  if (!wants_(squares.linear.module)) return;
  Gathered& all = linears_[squares.linear.module];
  const size_t count = squares.gradients.size();
  const auto token = [&](size_t r) {
    return static_cast<int32_t>(place.first_token) +
           (squares.rows.empty() ? static_cast<int32_t>(r) : squares.rows[r]);
  };
  std::vector<int32_t>& tokens = all.squares.tokens;
  if (place.draw == 0)
    for (size_t r = 0; r < count; ++r) tokens.push_back(token(r));
  all.squares.weights.resize(tokens.size());
  const auto first =
      static_cast<size_t>(std::ranges::lower_bound(tokens, token(0)) - tokens.begin());
  CHECK(first + count <= tokens.size(), squares.linear.module, ": ", count, " rows");
  for (size_t r = 0; r < count; ++r) {
    const double square = squares.gradients[r], size = squares.inputs[r];
    all.squares.weights[first + r] += static_cast<float>(square);
    all.weighted += square * size;
    if (place.draw == 0) all.plain += size;
  }
}

FisherWeights GradientSquares::weights(double plain_share) && {
  FisherWeights out;
  for (auto& [module, gathered] : linears_) {
    const double scale = gathered.plain / gathered.weighted;
    const bool usable = gathered.weighted > 0 && std::isfinite(scale);
    TokenWeights& made = out[module] = std::move(gathered.squares);
    for (float& weight : made.weights)
      weight =
          usable ? static_cast<float>(static_cast<double>(weight) * scale + plain_share) : 1.0F;
    made.other = usable ? static_cast<float>(plain_share) : 1.0F;
    if (is_counted_through(made.tokens)) made.tokens.clear();
  }
  return out;
}

}  // namespace nibble::gradient
