// RMS norm and the two scalar functions of the gates.
#pragma once

#include <cmath>
#include <vector>

#include "base/result.h"
#include "model/config/config.h"
#include "model/weights/weights.h"

namespace nibble::reference {

/// y = x * rsqrt(mean(x^2) + eps) * (1 + w), or * w for plain; over vectors of weight.size().
struct RmsNorm {
  std::vector<float> weight;
  NormKind kind = NormKind::zero_centred;
  float eps = 1e-6F;

  static Result<RmsNorm> load(const Weights& weights, const VectorSource& source,
                              const ModelConfig& config);
  /// One vector; `out` may be `x`.
  void apply(const float* x, float* out) const;
  /// Every vector of x [T, weight.size()].
  std::vector<float> apply(const std::vector<float>& x) const;
};

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline double silu(double x) { return x / (1.0 + std::exp(-x)); }

}  // namespace nibble::reference
