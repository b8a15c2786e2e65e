// HeadResults: the last step of a pass: logits, and how they reach the host: all of them, or short
// lists and later the rows that somebody asks for. Waits for nothing but in fetch().
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "backend/cuda/context.h"
#include "backend/cuda/ops/head/short_list.h"
#include "backend/cuda/runtime/device_memory.h"
#include "model/backend.h"

namespace nibble::cuda {

class HeadResults {
 public:
  Result<void> reserve(const ModelConfig& config, const PoolSizes& sizes, const Workspace& work);
  /// Does what Backend::set_sampleable() says, and waits for the device.
  void set_sampleable(std::span<const uint32_t> bits);

  /// Logits and short lists of the first `rows` rows, into the addresses that run() reads: for
  /// recording.
  void record(const Context& context, int32_t rows) const;
  /// recorded: the pass that runs is a recording that ends with the head.
  enum class Head : uint8_t { to_launch, recorded };
  /// Launches the head of a pass, unless it runs already, and the copies of what it gives.
  void run(const Context& context, const DeviceBatch& rows, const Batch& batch, Head head);
  /// The output of the pass that run() launched, which must have ended.
  HeadOutput output();
  /// Does what Backend::fetch_logits() says; the context is still that of the pass.
  std::span<const float> fetch(const Context& context, std::span<const int32_t> indices);

 private:
  void make_short_lists(const Context& context, int32_t begin, int32_t rows) const;
  void compute_row_block(const Context& context, int32_t begin);
  void copy_rows(const Context& context, int32_t begin, int32_t end);
  void make_room(int32_t rows);
  int32_t row_block() const { return std::min(rows_max_, kRowBlock); }

  int32_t rows_max_ = 0;
  int32_t vocab_ = 0;
  int32_t hidden_ = 0;
  int32_t list_rows_ = 0;   // most rows with short lists; 0: they do not fit this vocabulary
  DeviceSlice groups_;      // ListGroup [row block][list_groups(vocab)]
  DeviceSlice sampleable_;  // bits of [list_groups(vocab) * kListGroup] tokens
  PinnedBuffer lists_;      // ShortListRow [list_rows_]
  PinnedBuffer logits_, hidden_rows_;             // [row block]
  std::vector<float> more_logits_, more_hidden_;  // of more rows than that
  // State of the last pass.
  std::vector<int32_t> device_rows_;  // of the rows of work.logits, by logit row, if recorded
  int32_t rows_ = 0;                  // whose logits are wanted
  bool recorded_ = false;
  bool listed_ = false;
  int32_t block_begin_ = 0;  // else: first of the logit rows that work.logits holds
  float* logits_out_ = nullptr;
  float* hidden_out_ = nullptr;
  std::vector<ShortList> short_lists_;
};

}  // namespace nibble::cuda
