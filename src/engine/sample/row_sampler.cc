// Rows to threads.
#include "engine/sample/row_sampler.h"

#include <algorithm>

namespace nibble {
namespace {

void sample_row(Sampler& sampler, SampleRow& row) {
  if (!row.sampled)
    row.sampled = Sampler::result_of(sampler.choose(row.logits, row.choice), row.choice.rule);
}

}  // namespace

RowSampler::RowSampler(const Sampler& sampler, int threads) : pool_(threads) {
  for (int i = 0; i < pool_.size(); ++i) {
    samplers_.push_back(std::make_unique<Sampler>(sampler));
    idle_.push_back(samplers_.back().get());
  }
}

void RowSampler::sample(std::span<SampleRow> rows) {
  // Below this many steps a row is faster than waking a thread.
  constexpr size_t kStepsPerThread = 65536;
  if (rows.empty()) return;
  size_t steps = 1;  // steps of the most expensive row
  for (const SampleRow& row : rows)
    if (!row.sampled)
      steps = std::max({steps, row.logits.size(),
                        row.choice.history.prompt.size() + row.choice.history.generated.size()});
  const size_t grain = std::max<size_t>(1, kStepsPerThread / steps);
  pool_.parallel_for(rows.size(), grain, [&](size_t begin, size_t end) {
    Sampler* sampler = nullptr;
    {
      const std::lock_guard lock(mutex_);
      CHECK(!idle_.empty(), "more chunks at once than threads");
      sampler = idle_.back();
      idle_.pop_back();
    }
    for (SampleRow& row : rows.subspan(begin, end - begin)) sample_row(*sampler, row);
    const std::lock_guard lock(mutex_);
    idle_.push_back(sampler);
  });
}

}  // namespace nibble
