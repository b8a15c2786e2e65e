// DenseLinear: an unquantized linear in F32, in both directions.
#pragma once

#include "base/result.h"
#include "quantize/gradient/rows.h"

namespace nibble::gradient {

class DenseLinear {
 public:
  /// An absent source gives an empty linear that must not be used.
  static Result<DenseLinear> load(const Weights& weights, const LinearSource& source);

  /// A linear with other values [N, K] (CHECK).
  static DenseLinear of(LinearSource source, std::vector<float> values);

  int64_t rows() const { return source_.rows; }
  const LinearSource& source() const { return source_; }
  const std::vector<float>& values() const { return values_; }  // [N, K]
  /// x [R, K] -> x W^T [R, N]. Each sum goes over K in order, so the result depends on neither
  /// threads nor instruction set.
  Rows apply(const Rows& x, ThreadPool& threads) const;
  /// dx [R, K] += dy W, for the gradient dy [R, N] of the output that the input x gave. Shows both
  /// to pass.seen first. `rows`: as OutputGradientSeen says.
  void add_back(const Rows& x, const Rows& dy, Rows& dx, const Pass& pass,
                std::span<const int32_t> rows = {}) const;

 private:
  LinearSource source_;
  std::vector<float> values_;  // [N, K]
};

}  // namespace nibble::gradient
