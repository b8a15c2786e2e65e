// RMS norm, the scalar functions of the gates, and their derivatives.
#pragma once

#include <cmath>

#include "base/result.h"
#include "quantize/gradient/rows.h"

namespace nibble::gradient {

/// y = x * rsqrt(mean(x^2) + eps) * weight, over vectors of weight.size().
struct Norm {
  std::vector<float> weight;  // with the 1 that a zero-centred norm adds
  double eps = 0;

  static Result<Norm> load(const Weights& weights, const VectorSource& source, NormKind kind,
                           const ModelConfig& config);
  int64_t width() const { return static_cast<int64_t>(weight.size()); }
  void apply(const float* x, float* y) const;
  /// dx += the gradient of x, given that of y.
  void add_back(const float* x, const float* dy, float* dx) const;
  /// All rows of x [T, width].
  Rows apply(const Rows& x, ThreadPool& threads) const;
  void add_back(const Rows& x, const Rows& dy, Rows& dx, ThreadPool& threads) const;
};

inline float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }
inline float silu(float x) { return x * sigmoid(x); }
/// The derivative of silu.
inline float silu_slope(float x) {
  const float s = sigmoid(x);
  return s * (1.0F + x * (1.0F - s));
}

}  // namespace nibble::gradient
