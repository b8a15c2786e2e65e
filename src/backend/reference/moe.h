// Routed experts and the gated shared expert.
#pragma once

#include <optional>
#include <vector>

#include "backend/reference/dense_mlp.h"
#include "backend/reference/linear.h"
#include "model/config/config.h"

namespace nibble::reference {

class Moe {
 public:
  static Result<Moe> load(const Weights& weights, const MoeSources& sources,
                          const ModelConfig& config, const LinearOptions& options);

  /// x [T, hidden], normed -> sum over the top-k experts of p_e expert_e(x), plus
  /// sigmoid(shared_gate x) shared(x) where there is a shared expert.
  std::vector<float> run(const std::vector<float>& x) const;

 private:
  struct Choice {
    size_t expert;
    double weight;
  };
  /// Softmax over all experts, the top_k largest (ties: the lower index), renormalised to sum 1
  /// where the config says so.
  std::vector<Choice> route(const float* logits) const;
  void add_shared(const std::vector<float>& x, std::vector<double>& sum) const;

  MoeConfig config_;
  Linear router_;
  std::vector<DenseMlp> experts_;
  DenseMlp shared_;
  Linear shared_gate_;
};

}  // namespace nibble::reference
