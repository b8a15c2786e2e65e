// SwiGLU feed-forward.
#include "backend/reference/dense_mlp.h"

#include "backend/reference/norm.h"

namespace nibble::reference {

Result<DenseMlp> DenseMlp::load(const Weights& weights, const MlpSources& sources,
                                Activations mode) {
  DenseMlp mlp;
  mlp.gate = TRY(Linear::load(weights, sources.gate, mode));
  mlp.up = TRY(Linear::load(weights, sources.up, mode));
  mlp.down = TRY(Linear::load(weights, sources.down, mode));
  return mlp;
}

std::vector<float> DenseMlp::run(const std::vector<float>& x) const {
  std::vector<float> inner = gate.apply(x);
  const std::vector<float> raised = up.apply(x);
  for (size_t i = 0; i < inner.size(); ++i)
    inner[i] = static_cast<float>(silu(inner[i]) * raised[i]);
  return down.apply(inner);
}

}  // namespace nibble::reference
