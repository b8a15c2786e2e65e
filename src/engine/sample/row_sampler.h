// RowSampler: samples all rows of a pass at once, several threads sharing them. A row's token does
// not depend on the others or on the threads.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "engine/sample/sampler.h"

namespace nibble {

/// One row to sample; everything it names must stay while sample() runs.
struct SampleRow {
  std::span<const float> logits;          // [vocab_rows]; or empty, and
  const ShortList* short_list = nullptr;  // its short list
  const SamplingParams* params = nullptr;
  TokenHistory history;
  uint64_t position = 0;
  std::span<const uint32_t> mask;               // may be empty
  std::optional<Result<SampledToken>> sampled;  // the answer; stays empty where the short list
                                                // leaves it open
};

class RowSampler {
 public:
  /// `threads` as ThreadPool counts them.
  RowSampler(const Sampler& sampler, int threads);

  /// Fills `sampled` of every row that lacks it.
  void sample(std::span<SampleRow> rows);

  const Sampler& sampler() const { return *samplers_.front(); }

 private:
  ThreadPool pool_;
  std::mutex mutex_;                                // guards idle_
  std::vector<std::unique_ptr<Sampler>> samplers_;  // each has scratch memory of its own
  std::vector<Sampler*> idle_;
};

}  // namespace nibble
