// A round is uploaded once; then each step leaves the tokens, places and hidden rows of the next on
// the device.
#include "backend/cuda/draft/draft_rounds.h"

#include <algorithm>

namespace nibble::cuda {
namespace {

/// The parts of the batch that steps change.
int32_t* writable(const int32_t* field) { return const_cast<int32_t*>(field); }

void see(Context& context, const BatchView& view) {
  context.all = context.batch = view;
  context.prompts = BatchView();
}

}  // namespace

Result<void> DraftRounds::reserve(const ModelConfig& config, const Workspace& work) {
  vocab_ = config.draft_head_rows();
  hidden_ = config.hidden;
  work_ = &work;
  group_max_ = 0;
  asked_ = TRY(PinnedBuffer::allocate(work.draft.asked.bytes(), "drafts"));
  out_ = TRY(PinnedBuffer::allocate(work.draft.out.bytes(), "drafts"));
  return {};
}

DraftRows DraftRounds::rows_of(const BatchView& view) const {
  const DraftMemory& memory = work_->draft;
  const auto* asked = memory.asked.as<int32_t>();
  return {.rows = view.rows,
          .tokens = writable(view.tokens),
          .positions = writable(view.positions),
          .kv_index = writable(view.kv_index),
          .count = asked,
          .next_position = asked + view.rows,
          .done = memory.done.as<int32_t>(),
          .out = memory.out.as<int32_t>(),
          .best = memory.best.as<uint64_t>()};
}

Result<void> DraftRounds::record(Context& context, DeviceBatch& batch, int32_t rows) {
  const Extent extent{.rows = rows, .sequences = rows};
  group_max_ = std::max(group_max_, rows);
  const cudaStream_t stream = context.launcher.stream;
  batch.upload(Batch(), extent, stream);
  see(context, batch.view());
  context.launcher.carveout_steps = context.launcher.card.has_wgmma() ? carveout_steps(rows) : 0;
  const auto walk = [&] { draft_step_block(context, rows_of(batch.view())); };
  walk();  // every kernel is loaded afterwards
  CUDA_CHECK(cudaStreamSynchronize(stream));
  const Result<void> outcome = steps_.record(extent, stream, walk);
  context.launcher.carveout_steps = 0;
  return outcome;
}

/// Uploads the first step's rows and what the round is asked for.
void DraftRounds::start(Context& context, DeviceBatch& batch, const DraftBatch& drafts,
                        const Group& group) {
  DraftBatch part;
  part.pages = drafts.pages;
  part.sequences.assign(
      drafts.sequences.begin() + static_cast<std::ptrdiff_t>(group.begin),
      drafts.sequences.begin() + static_cast<std::ptrdiff_t>(group.begin + group.count));
  Batch first = draft_step(part, 0, {});
  for (size_t i = 0; i < group.count; ++i) {
    first.sequences[i].state_in = first.sequences[i].state_out = part.sequences[i].state;
    first.sequences[i].replay = part.sequences[i].replay;
  }
  const auto count = static_cast<int32_t>(group.count);
  const std::optional<Extent> extent = steps_.fitting({.rows = count, .sequences = count});
  CHECK(extent, "no recorded step of ", count, " drafts");
  const cudaStream_t stream = context.launcher.stream;
  batch.upload(first, *extent, stream);
  see(context, batch.view());
  auto* asked = asked_.as<int32_t>();
  std::fill_n(asked, 2 * extent->rows, 0);
  for (size_t i = 0; i < group.count; ++i) {
    asked[i] = part.sequences[i].count;
    asked[static_cast<size_t>(extent->rows) + i] = part.sequences[i].position;
  }
  CUDA_CHECK(cudaMemcpyAsync(work_->draft.asked.as<int32_t>(), asked,
                             static_cast<size_t>(2 * extent->rows) * sizeof(int32_t),
                             cudaMemcpyHostToDevice, stream));
  begin_draft({.rows = rows_of(batch.view()),
               .batch = batch.view(),
               .slots = context.pools.hidden(),
               .before = work_->draft.before.as<float>(),
               .hidden = hidden_},
              context.launcher.in_order());
}

/// The logits of the last step of those that took it.
void DraftRounds::keep_logits(const Context& context, const DraftBatch& drafts,
                              const Group& group) {
  const int32_t most = drafts.sequences.front().count;
  const auto last = [&](const DraftSequence& s) { return s.count == most; };
  const auto begin = drafts.sequences.begin() + static_cast<std::ptrdiff_t>(group.begin);
  const auto rows = static_cast<size_t>(
      std::count_if(begin, begin + static_cast<std::ptrdiff_t>(group.count), last));
  const size_t floats = rows * static_cast<size_t>(vocab_);
  const size_t at = logits_.size();
  logits_.resize(at + floats);
  CUDA_CHECK(cudaMemcpyAsync(logits_.data() + at, work_->logits.as<float>(), floats * sizeof(float),
                             cudaMemcpyDeviceToHost, context.launcher.stream));
}

DraftOutput DraftRounds::run(Context& context, DeviceBatch& batch, const DraftBatch& drafts) {
  const auto most = static_cast<size_t>(drafts.sequences.front().count);
  CHECK(most <= static_cast<size_t>(kDraftsMost), "drafts of ", most, " tokens");
  const size_t sequences = drafts.sequences.size();
  const cudaStream_t stream = context.launcher.stream;
  tokens_.assign(sequences * most, -1);
  logits_.clear();
  for (Group group; group.begin < sequences; group.begin += group.count) {
    group.count = std::min(sequences - group.begin, static_cast<size_t>(group_max_));
    start(context, batch, drafts, group);
    const int32_t steps = drafts.sequences[group.begin].count;
    const cudaGraphExec_t step = steps_.at(context.batch.extent());
    for (int32_t i = 0; i < steps; ++i) CUDA_CHECK(cudaGraphLaunch(step, stream));
    CUDA_CHECK(cudaMemcpyAsync(out_.as<int32_t>(), work_->draft.out.as<int32_t>(),
                               group.count * kDraftsMost * sizeof(int32_t), cudaMemcpyDeviceToHost,
                               stream));
    if (drafts.wants_logits) keep_logits(context, drafts, group);
    CUDA_CHECK(cudaStreamSynchronize(stream));
    for (size_t i = 0; i < group.count; ++i)
      std::copy_n(out_.as<int32_t>() + i * kDraftsMost, most,
                  tokens_.begin() + static_cast<std::ptrdiff_t>((group.begin + i) * most));
  }
  return {.tokens = tokens_, .logits = logits_};
}

}  // namespace nibble::cuda
