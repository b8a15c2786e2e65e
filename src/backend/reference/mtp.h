// The MTP layer, which drafts tokens (model.md 3.2): entry t + 1 is made of the embedding of token
// t + 1 and the hidden row of token t.
#pragma once

#include <vector>

#include "backend/reference/attention.h"
#include "backend/reference/dense_mlp.h"
#include "backend/reference/linear.h"
#include "backend/reference/moe.h"
#include "backend/reference/norm.h"
#include "backend/reference/vision.h"
#include "model/draft.h"

namespace nibble::reference {

/// The parts of the model that the layer works with.
struct MtpHost {
  const Linear& embedding;
  const Linear& output;  // the head, where the layer has none of its own
  const Vision* vision;  // null: no tower
  StateSlots& slots;
  KvPages& pages;
};

class Mtp {
 public:
  static Result<Mtp> load(const Weights& weights, const ModelConfig& config,
                          const LinearOptions& options, PromptRounding rounding);

  /// Backend::keep_draft_entries, with the hidden rows [T, hidden] of the pass.
  void keep_pass(const MtpHost& host, const Batch& batch, const std::vector<float>& hidden) const;
  /// Backend::draft.
  struct Drafts {
    std::vector<int32_t> tokens;
    std::vector<float> logits;
  };
  Drafts draft(const MtpHost& host, const DraftBatch& batch,
               std::span<const uint32_t> allowed) const;

 private:
  /// Rows of a batch: their embeddings [T, hidden], and the hidden rows [T, hidden] of the tokens
  /// before them, after the model's final norm. Keeps their keys and values; those of place 0, and
  /// of rows that are not finite, are zeros. The batch's rotary positions are those of the entries.
  void keep(const Batch& entries, const std::vector<float>& embedded,
            const std::vector<float>& hidden, KvPages& pages) const;
  /// The same, and the layer's output after its norm [T, hidden]: input of the head, and in place
  /// of a hidden row for the token after.
  std::vector<float> run(const Batch& entries, const std::vector<float>& embedded,
                         const std::vector<float>& hidden, KvPages& pages) const;
  int width() const { return static_cast<int>(norm_.weight.size()); }
  /// u = joined [norm(embedding) | norm(hidden)], [T, hidden].
  std::vector<float> join(const std::vector<float>& embedded,
                          const std::vector<float>& hidden) const;

  int kv_layer_ = 0;             // the last of a page
  std::vector<int32_t> tokens_;  // token ids of the rows of the head; empty: all
  bool has_experts_ = false;
  RmsNorm embedding_norm_, hidden_norm_, input_norm_, post_norm_, norm_;
  Linear joined_, head_;
  Attention attention_;
  Moe moe_;
  DenseMlp dense_mlp_;
};

}  // namespace nibble::reference
