// Robust decaying least squares in six unknowns, each a multiple of its prior, inside a box.
#include "engine/schedule/cost_model.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace nibble {

namespace {

constexpr double kDecay = 0.99;  // weight of evidence per pass of its kind: about 100 passes count
constexpr double kInertia = 0.02;  // weight of the present estimate, in passes
constexpr double kErrorDecay = 0.95;
constexpr double kErrorMin = 0.02;  // below this, errors are noise
constexpr double kOutlier = 3.0;    // times the usual error
constexpr int kSweeps = 8;

}  // namespace

void PassShape::add_piece(int32_t depth, int32_t rows) {
  prefill_tokens += rows;
  prefill_pairs += static_cast<double>(rows) * (2.0 * depth + rows);
}

CostModel::CostModel(const CostParameters& prior)
    : prior_{prior.pass,          prior.decode_row,   prior.prefill,
             prior.prefill_token, prior.prefill_pair, prior.drafted_row},
      scale_{1, 1, 1, 1, 1, 1},
      current_(prior) {
  for (const double value : prior_)
    CHECK(std::isfinite(value) && value > 0.0, "cost prior ", value);
}

double CostModel::ms(const PassShape& shape) const {
  const double prefill = shape.prefill_tokens > 0 ? current_.prefill : 0.0;
  return current_.pass + current_.decode_row * shape.decode_rows +
         current_.drafted_row * shape.drafted_rows + prefill +
         current_.prefill_token * shape.prefill_tokens +
         current_.prefill_pair * shape.prefill_pairs;
}

double CostModel::piece_ms(int32_t depth, int32_t rows) const {
  const double n = rows;
  return n * (current_.prefill_token + current_.prefill_pair * (2.0 * depth + n));
}

int32_t CostModel::rows_within(int32_t depth, double ms) const {
  if (!(ms > 0.0)) return 0;
  // The positive root of pair n^2 + (token + 2 pair depth) n = ms, in the form without
  // cancellation.
  const double linear = current_.prefill_token + 2.0 * current_.prefill_pair * depth;
  const double root =
      2.0 * ms / (linear + std::sqrt(linear * linear + 4.0 * current_.prefill_pair * ms));
  return static_cast<int32_t>(std::min(root, 1e9));
}

void CostModel::Evidence::add(const Terms& x, double y, double weight) {
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t j = 0; j < kTerms; ++j)
      squares[i][j] = kDecay * squares[i][j] + weight * x[i] * x[j];
    products[i] = kDecay * products[i] + weight * x[i] * y;
  }
}

void CostModel::observe(const PassShape& shape, double ms) {
  const bool prefill = shape.prefill_tokens > 0;
  if (!std::isfinite(ms) || ms <= 0.0 || (!prefill && shape.decode_rows <= 0)) return;
  // Relative to the larger of both times, so that one absurd pass weighs no more than another.
  const double expected = this->ms(shape);
  const double unit = std::max(ms, expected);
  const double error = std::abs(ms - expected) / unit;
  const double usual = kOutlier * std::max(usual_error_, kErrorMin);
  usual_error_ = kErrorDecay * usual_error_ + (1.0 - kErrorDecay) * error;
  Terms x = {1.0,
             static_cast<double>(shape.decode_rows),
             prefill ? 1.0 : 0.0,
             static_cast<double>(shape.prefill_tokens),
             shape.prefill_pairs,
             static_cast<double>(shape.drafted_rows)};
  for (size_t i = 0; i < kTerms; ++i) x[i] *= prior_[i] / unit;
  (prefill ? with_prefill_ : decode_only_).add(x, ms / unit, std::min(1.0, usual / error));
  fit();
}

/// Coordinate descent from the last solution: six unknowns, a convex function, a box. Inertia is
/// relative to what each is now: it holds what the evidence does not tell apart, and yields to it
/// in a few passes else.
void CostModel::fit() {
  const Terms held = scale_;
  for (int sweep = 0; sweep < kSweeps; ++sweep)
    for (size_t i = 0; i < kTerms; ++i) {
      const double inertia = kInertia / (held[i] * held[i]);
      double rest = with_prefill_.products[i] + decode_only_.products[i] + inertia * held[i];
      for (size_t j = 0; j < kTerms; ++j)
        if (j != i) rest -= (with_prefill_.squares[i][j] + decode_only_.squares[i][j]) * scale_[j];
      const double own = with_prefill_.squares[i][i] + decode_only_.squares[i][i] + inertia;
      scale_[i] = std::clamp(rest / own, 1.0 / kScaleMax, kScaleMax);
    }
  current_ = {.pass = prior_[0] * scale_[0],
              .decode_row = prior_[1] * scale_[1],
              .prefill = prior_[2] * scale_[2],
              .prefill_token = prior_[3] * scale_[3],
              .prefill_pair = prior_[4] * scale_[4],
              .drafted_row = prior_[5] * scale_[5]};
}

}  // namespace nibble
