// Full attention with grouped queries, partial rotary positions and an optional output gate.
#pragma once

#include <vector>

#include "backend/reference/caches.h"
#include "backend/reference/linear.h"
#include "backend/reference/norm.h"
#include "backend/reference/prompt_rounding.h"
#include "model/batch.h"
#include "model/config/rope.h"

namespace nibble::reference {

class Attention {
 public:
  static Result<Attention> load(const Weights& weights, const AttentionSources& sources,
                                const ModelConfig& config, const LinearOptions& options,
                                PromptRounding rounding);

  /// x [T, hidden], normed -> [T, hidden]. Writes keys and values of every row into its page, then
  /// attends: softmax(q k / sqrt(Dh)) over tokens 0..own index. `layer` counts attention layers.
  std::vector<float> run(const Batch& batch, int layer, const std::vector<float>& x,
                         KvPages& pages) const;
  /// Writes keys and values of every row and attends to nothing.
  void store(const Batch& batch, int layer, const std::vector<float>& x, KvPages& pages) const;
  /// From now on no row sees tokens before `first`.
  void see_from(int first) { first_ = first; }

 private:
  std::vector<float> queries(const Batch& batch, const std::vector<float>& projected,
                             const KvPages& pages) const;
  void attend(const Batch& batch, const BatchSequence& sequence, int row, int layer, const float* q,
              KvPages& pages, float* out) const;
  void attend_head(const int32_t* table, int64_t tokens, int layer, int head, const float* q,
                   KvPages& pages, float* out, PromptRounding rounding) const;
  /// o *= sigmoid(gate), gate taken from q_proj's rows [q | gate] of each head.
  void gate(const std::vector<float>& projected, std::vector<float>& o) const;

  AttentionConfig config_;
  int first_ = 0;
  PromptRounding rounding_ = PromptRounding::none;
  RopeTable rope_;
  Linear q_, k_, v_, o_;
  RmsNorm q_norm_, k_norm_;
};

}  // namespace nibble::reference
