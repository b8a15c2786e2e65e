// Squares that are no finite numbers count as zero, as do rows whose inputs are none.
#include "quantize/gradient/gradient_squares.h"

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
  Gathered& all = linears_[linear.module];
  const auto count = static_cast<size_t>(gradient.count);
  if (place.draw == 0) all.squares.weights.resize(all.squares.weights.size() + count);
  CHECK(all.squares.weights.size() >= count, linear.module, ": ", count, " rows");
  float* squares = &all.squares.weights[all.squares.weights.size() - count];
  for (size_t r = 0; r < count; ++r) {
    const double square = finite_square(gradient.row(static_cast<int64_t>(r)), gradient.width);
    const double size = finite_square(input.row(static_cast<int64_t>(r)), input.width);
    squares[r] += static_cast<float>(square);
    all.weighted += square * size;
    if (place.draw > 0) continue;
    all.plain += size;
    all.squares.tokens.push_back(static_cast<int32_t>(
        place.first_token + (rows.empty() ? static_cast<int64_t>(r) : rows[r])));
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
