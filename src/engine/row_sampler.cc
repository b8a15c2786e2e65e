// Rows to threads.
#include "engine/row_sampler.h"

#include <algorithm>

namespace nibble {

RowSampler::RowSampler(const Sampler& sampler, int threads) : pool_(threads) {
  for (int i = 0; i < pool_.size(); ++i) {
    samplers_.push_back(std::make_unique<Sampler>(sampler));
    idle_.push_back(samplers_.back().get());
  }
}

void RowSampler::sample(std::span<SampleRow> rows) {
  // Below this many logits a row is faster than waking a thread.
  constexpr size_t kLogitsPerThread = 65536;
  if (rows.empty()) return;
  const size_t grain = std::max<size_t>(1, kLogitsPerThread / rows.front().logits.size());
  pool_.parallel_for(rows.size(), grain, [&](size_t begin, size_t end) {
    Sampler* sampler = nullptr;
    {
      const std::lock_guard lock(mutex_);
      CHECK(!idle_.empty(), "more chunks at once than threads");
      sampler = idle_.back();
      idle_.pop_back();
    }
    for (SampleRow& row : rows.subspan(begin, end - begin))
      row.sampled = sampler->sample(row.logits, *row.params, row.history, row.position, row.mask);
    const std::lock_guard lock(mutex_);
    idle_.push_back(sampler);
  });
}

}  // namespace nibble
