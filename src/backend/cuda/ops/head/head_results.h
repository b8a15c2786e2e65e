// HeadResults runs the last step of a pass. The host gets the tokens that the device chose, or all
// logits. It waits for nothing.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "backend/cuda/context.h"
#include "backend/cuda/ops/head/token_chooser.h"
#include "backend/cuda/runtime/device_memory.h"
#include "model/backend.h"

namespace nibble::cuda {

class HeadResults {
 public:
  Result<void> reserve(const ModelConfig& config, const PoolSizes& sizes, const Workspace& work);
  void set_sampleable(std::span<const uint32_t> bits) { chooser_.set_sampleable(bits); }

  /// recorded: the pass that runs is a recording that ends with the head.
  enum class Head : uint8_t { to_launch, recorded };
  /// Launches the head of a pass, unless it runs already, and what its results need.
  void run(const Context& context, const DeviceBatch& rows, const Batch& batch, Head head);
  /// True if the device chooses the tokens of this batch, so that the host need not wait for them.
  bool takes(const Batch& batch) const { return chooser_.takes(batch); }
  /// Returns where the device leaves them. Only kernels on the stream of passes may read there.
  const ChosenRow* chosen_rows() const { return chooser_.results(); }
  /// The output of the pass that run() launched, which must have ended.
  HeadOutput output();

 private:
  void copy_rows(const Context& context, int32_t begin, int32_t end);
  void make_room(int32_t rows);
  int32_t row_block() const { return std::min(rows_max_, kRowBlock); }

  int32_t rows_max_ = 0;
  int32_t vocab_ = 0;
  int32_t hidden_ = 0;
  TokenChooser chooser_;
  PinnedBuffer logits_, hidden_rows_;             // [row block]
  std::vector<float> more_logits_, more_hidden_;  // for passes with more rows
  // State of the last pass.
  std::vector<int32_t> places_;  // row of work.logits for each logit row
  int32_t rows_ = 0;             // rows whose logits are wanted
  bool recorded_ = false;
  bool chosen_ = false;
  float* logits_out_ = nullptr;
  float* hidden_out_ = nullptr;
};

}  // namespace nibble::cuda
