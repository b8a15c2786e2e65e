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
  std::span<const float> logits;  // [vocab_rows]; may be empty where `sampled` is there already
  TokenChoice choice;
  std::optional<Result<SampledToken>> sampled;  // the answer
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
