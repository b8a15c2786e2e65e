// SwiGLU feed-forward.
#include "backend/reference/dense_mlp.h"

#include "backend/reference/norm.h"

namespace nibble::reference {

Result<DenseMlp> DenseMlp::load(const Weights& weights, const MlpSources& sources,
                                const LinearOptions& options) {
  DenseMlp mlp;
  mlp.gate = TRY(Linear::load(weights, sources.gate, options));
  mlp.up = TRY(Linear::load(weights, sources.up, options));
  mlp.down = TRY(Linear::load(weights, sources.down, options));
  return mlp;
}

std::vector<float> DenseMlp::run(const std::vector<float>& x, int64_t first_row) const {
  std::vector<float> inner = gate.apply(x, first_row);
  const std::vector<float> raised = up.apply(x, first_row);
  for (size_t i = 0; i < inner.size(); ++i)
    inner[i] = static_cast<float>(silu(inner[i]) * raised[i]);
  return down.apply(inner, first_row);
}

}  // namespace nibble::reference
