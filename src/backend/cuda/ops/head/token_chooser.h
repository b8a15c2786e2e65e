// TokenChooser: chooses tokens on the device for the logit rows of a pass. It keeps what a choice
// needs beside the logits: the rules, biases and masks of this pass, and for sequences with
// penalties a table of how often each token was said. All of it travels on the device's
// stream for copies while the pass computes.
#pragma once

#include <span>
#include <vector>

#include "backend/cuda/context.h"
#include "backend/cuda/ops/head/choose_token.h"
#include "backend/cuda/runtime/device_memory.h"
#include "backend/cuda/runtime/stream.h"
#include "model/backend.h"

namespace nibble::cuda {

class TokenChooser {
 public:
  Result<void> reserve(const ModelConfig& config, const PoolSizes& sizes, const Workspace& work);
  /// Does what Backend::set_sampleable() says, and waits for the device.
  void set_sampleable(std::span<const uint32_t> bits);

  /// True if the choices of this batch can be made here. The others are the host's: the logits of
  /// the pass are copied there.
  bool takes(const Batch& batch) const;
  /// Sends everything but logits. `logits_rows`: where the logits of each logit row will be.
  void send(const Batch& batch, std::span<const int32_t> logits_rows, const Launcher& launcher);
  /// Chooses for logit rows [begin, begin + rows), whose logits `logits` holds by then.
  void choose(const float* logits, int32_t begin, int32_t rows, const Launcher& launcher);
  /// Returns where the device leaves the outcomes, one for each logit row.
  const ChosenRow* results() const { return results_.as<ChosenRow>(); }
  /// The first `rows` outcomes, of a pass that has ended.
  std::span<const ChosenToken> chosen(int32_t rows);

 private:
  /// The tokens of a sequence that its table has counted.
  struct Table {
    uint64_t serial = 0;  // 0: nobody's
    size_t prompt = 0;
    size_t generated = 0;
    uint64_t used = 0;  // the last pass
  };
  int32_t table_of(const TokenHistory& history);
  void count(size_t table, std::span<const int32_t> tokens, size_t& counted, uint32_t kind);
  void flush_counts();
  void send_masks(const Batch& batch, std::span<ChoiceRow> rows);

  int32_t vocab_ = 0;
  int32_t rows_max_ = 0;  // logit rows of a pass; 0: the vocabulary is too large
  int64_t mask_words_ = 0;
  int64_t counts_stride_ = 0;
  cudaStream_t stream_ = nullptr;  // the device's for copies, of what is sent
  Event sent_;
  DeviceSlice state_, rows_, biases_, masks_, sampleable_, counts_, counted_;
  PinnedBuffer host_rows_, host_biases_, host_masks_, host_counted_, results_;
  std::vector<Table> tables_;
  uint64_t pass_ = 0;
  // Entries of host_counted_: those that are on their way to the card, and all that are written.
  int64_t counting_from_ = 0;
  int64_t counted_to_ = 0;
  Launcher counting_;  // on stream_
  std::vector<ChosenToken> chosen_;
};

}  // namespace nibble::cuda
