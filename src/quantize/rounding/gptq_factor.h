// The order in which GPTQ (arXiv 2210.17323) rounds the columns of a linear, and how it spreads the
// error of each over those still to come: both follow from the linear's input. Rounding to a format
// is round_gptq.cc (NVFP4) and fp8_gptq.h.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "model/taps.h"
#include "tensor/tensor.h"

namespace nibble {

/// With H the damped second moment in the order of the columns, U is upper triangular and
/// U^T U = H^-1: the error e_j = (w_j - q_j) / U_jj is taken off w_k as e_j U_jk for all k > j.
/// M is the inverse of U, so that H = M M^T, and H (w - q) = M e.
struct GptqFactor {
  int64_t cols = 0;
  double damping = 0;  // added to H's diagonal, as a share of its mean
  /// [K/16]: blocks of 16 columns, those with the largest inputs first; equal ones as they are.
  std::vector<int64_t> order;
  /// [K, K]: U on and above the diagonal; below it the transpose of M, whose own is 1 / U_jj.
  std::vector<float> factors;
  std::vector<float> costs;  // [K]: 1 / U_jj^2 over its mean, what an error of column j costs
  /// Place of the ordered column `i` in the file.
  int64_t column(int64_t i) const { return order[static_cast<size_t>(i / 16)] * 16 + i % 16; }
  /// Row `row` of weights [N, K] times a power of two, columns in order. out: [K].
  void load_row(const TensorView& weights, int64_t row, float unit, float* out) const;
};

/// Blocks of 16 columns, those with the largest inputs first; equal ones as they are. [K/16].
std::vector<int64_t> block_order(const InputStatistics& statistics);

/// H, columns in the factor's order, over the mean of the undamped diagonal.
class DampedMoment {
 public:
  DampedMoment(const GptqFactor& factor, const InputStatistics& statistics);
  double at(size_t i, size_t j) const;

 private:
  const GptqFactor& factor_;
  const InputStatistics& statistics_;
  double unit_;
};

/// `statistics` hold a full second moment with a mean square above zero. nullopt if the moment
/// cannot be factorised even with a hundred times the damping.
std::optional<GptqFactor> make_gptq_factor(const InputStatistics& statistics);

}  // namespace nibble
