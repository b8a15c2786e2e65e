// A recorded pass has the logits of all its rows on the device; one that was launched has those of
// one block of rows at a time.
#include "backend/cuda/ops/head/head_results.h"

#include <algorithm>

namespace nibble::cuda {
namespace {

void copy_to_host(const Context& context, float* to, const float* from, int64_t count) {
  CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(count) * sizeof(float),
                             cudaMemcpyDeviceToHost, context.launcher.stream));
}

}  // namespace

Result<void> HeadResults::reserve(const ModelConfig& config, const PoolSizes& sizes,
                                  const Workspace& work) {
  rows_max_ = sizes.rows_max;
  vocab_ = config.vocab_rows;
  hidden_ = config.hidden;
  const int64_t rows = row_block();
  logits_ = TRY(PinnedBuffer::allocate(rows * vocab_ * 4, "logits"));
  hidden_rows_ = TRY(PinnedBuffer::allocate(rows * hidden_ * 4, "hidden rows"));
  more_logits_ = {};
  more_hidden_ = {};
  return chooser_.reserve(config, sizes, work);
}

void HeadResults::run(const Context& context, const DeviceBatch& rows, const Batch& batch,
                      Head head) {
  rows_ = static_cast<int32_t>(batch.logit_rows.size());
  chosen_ = chooser_.takes(batch);
  recorded_ = head == Head::recorded;
  places_.clear();
  for (int32_t i = 0; i < rows_; ++i)
    places_.push_back(recorded_ ? rows.device_row(batch.logit_rows[static_cast<size_t>(i)])
                                : i % kRowBlock);
  if (chosen_)
    chooser_.send(batch, places_, context.launcher);
  else
    make_room(rows_);
  for (int32_t begin = 0; begin < rows_; begin += kRowBlock) {
    const int32_t end = std::min(begin + kRowBlock, rows_);
    if (!recorded_) head_block(context, context.batch.logit_rows + begin, end - begin);
    if (chosen_)
      chooser_.choose(context.work.logits.as<float>(), begin, end - begin, context.launcher);
    else
      copy_rows(context, begin, end);
  }
}

/// Makes room in host memory for the logits and hidden states of so many rows.
void HeadResults::make_room(int32_t rows) {
  const bool fits = rows <= row_block();
  if (!fits) {
    more_logits_.resize(static_cast<size_t>(rows) * static_cast<size_t>(vocab_));
    more_hidden_.resize(static_cast<size_t>(rows) * static_cast<size_t>(hidden_));
  }
  logits_out_ = fits ? logits_.as<float>() : more_logits_.data();
  hidden_out_ = fits ? hidden_rows_.as<float>() : more_hidden_.data();
}

/// Copies logits and hidden states of logit rows [begin, end) to their places on the host, adjacent
/// rows at once.
void HeadResults::copy_rows(const Context& context, int32_t begin, int32_t end) {
  const Workspace& work = context.work;
  const float* hidden = (recorded_ ? work.hidden : work.hidden_rows).as<float>();
  const auto place = [&](int64_t row) { return places_[static_cast<size_t>(row)]; };
  for (int32_t row = begin; row < end;) {
    int64_t count = 1;
    while (row + count < end && place(row + count) == place(row) + count) ++count;
    const int64_t from = place(row);
    copy_to_host(context, logits_out_ + int64_t{row} * vocab_,
                 work.logits.as<float>() + from * vocab_, count * vocab_);
    copy_to_host(context, hidden_out_ + int64_t{row} * hidden_, hidden + from * hidden_,
                 count * hidden_);
    row += static_cast<int32_t>(count);
  }
}

HeadOutput HeadResults::output() {
  const auto count = static_cast<size_t>(rows_);
  if (chosen_) return {.logits = {}, .hidden = {}, .chosen = chooser_.chosen(rows_)};
  return {.logits = {logits_out_, count * static_cast<size_t>(vocab_)},
          .hidden = {hidden_out_, count * static_cast<size_t>(hidden_)},
          .chosen = {}};
}

}  // namespace nibble::cuda
