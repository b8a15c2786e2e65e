// RMS norm in double.
#include "backend/reference/norm.h"

namespace nibble::reference {

Result<RmsNorm> RmsNorm::load(const Weights& weights, const VectorSource& source,
                              const ModelConfig& config) {
  return RmsNorm{.weight = TRY(weights.load(source)), .kind = config.norm, .eps = config.rms_eps};
}

void RmsNorm::apply(const float* x, float* out) const {
  double squares = 0.0;
  for (size_t i = 0; i < weight.size(); ++i) squares += double{x[i]} * x[i];
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(weight.size()) + eps);
  const double offset = kind == NormKind::zero_centred ? 1.0 : 0.0;
  for (size_t i = 0; i < weight.size(); ++i)
    out[i] = static_cast<float>(x[i] * scale * (offset + weight[i]));
}

std::vector<float> RmsNorm::apply(const std::vector<float>& x) const {
  std::vector<float> out(x.size());
  for (size_t at = 0; at < x.size(); at += weight.size()) apply(&x[at], &out[at]);
  return out;
}

}  // namespace nibble::reference
