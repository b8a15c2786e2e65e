// DraftRounds: rounds of drafts of the layer that drafts. A step is recorded once for each of a few
// numbers of sequences; a round launches it as often as tokens are wanted, and the host waits once,
// for all of them.
#pragma once

#include <span>
#include <vector>

#include "backend/cuda/context.h"
#include "backend/cuda/runtime/recorded_passes.h"
#include "model/draft.h"

namespace nibble::cuda {

class DraftRounds {
 public:
  /// Errors: no_memory.
  Result<void> reserve(const ModelConfig& config, const Workspace& work);
  /// Records the step of `rows` sequences. `batch` is the one that rounds will upload to, and
  /// `context` has the workspace and pools of reserve(). Errors: no_memory.
  Result<void> record(Context& context, DeviceBatch& batch, int32_t rows);
  void clear() { steps_.clear(); }
  /// Does what Backend::draft() says, as many sequences at a time as the largest recording has.
  DraftOutput run(Context& context, DeviceBatch& batch, const DraftBatch& drafts);

 private:
  struct Group {
    size_t begin = 0;
    size_t count = 0;
  };
  void start(Context& context, DeviceBatch& batch, const DraftBatch& drafts, const Group& group);
  void keep_logits(const Context& context, const DraftBatch& drafts, const Group& group);
  DraftRows rows_of(const BatchView& view) const;

  int32_t vocab_ = 0;  // rows of the head of drafts
  int32_t hidden_ = 0;
  int32_t group_max_ = 0;
  const Workspace* work_ = nullptr;
  PinnedBuffer asked_, out_;
  RecordedPasses steps_;
  std::vector<int32_t> tokens_;
  std::vector<float> logits_;
};

}  // namespace nibble::cuda
