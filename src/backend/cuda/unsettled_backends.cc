// Backends whose activations and products no rule has settled: they are what was asked for.
#include "backend/cuda/cuda_backend.h"

namespace nibble {

Result<std::unique_ptr<Backend>> make_cuda_backend(const Weights& weights,
                                                   const ModelConfig& config,
                                                   const BackendOptions& options) {
  return make_settled_cuda_backend(weights, config, options, {.activations = options.activations});
}

Result<std::unique_ptr<Backend>> make_fp4_emulating_backend(const Weights& weights,
                                                            const ModelConfig& config,
                                                            const BackendOptions& options) {
  return make_settled_cuda_backend(
      weights, config, options, {.activations = options.activations, .way = Fp4Products::software});
}

}  // namespace nibble
