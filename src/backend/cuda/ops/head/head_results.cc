// A recorded pass has the logits of all its rows on the device; one that was launched has those of
// one block of rows, and a fetch from another block makes them again: work.x stays until the next
// pass.
#include "backend/cuda/ops/head/head_results.h"

#include <algorithm>

namespace nibble::cuda {
namespace {

constexpr int32_t kListRowsMax = 1024;

void copy_to_host(const Context& context, float* to, const float* from, int64_t count) {
  CUDA_CHECK(cudaMemcpyAsync(to, from, static_cast<size_t>(count) * sizeof(float),
                             cudaMemcpyDeviceToHost, context.launcher.stream));
}

}  // namespace

Result<void> HeadResults::reserve(const ModelConfig& config, const PoolSizes& sizes,
                                  const Workspace& work) {
  *this = HeadResults();
  rows_max_ = sizes.rows_max;
  vocab_ = config.vocab_rows;
  hidden_ = config.hidden;
  const int64_t rows = row_block();
  logits_ = TRY(PinnedBuffer::allocate(rows * vocab_ * 4, "logits"));
  hidden_rows_ = TRY(PinnedBuffer::allocate(rows * hidden_ * 4, "hidden rows"));
  if (vocab_ > kListVocabMax) return {};
  list_rows_ = std::min(rows_max_, kListRowsMax);
  lists_ = TRY(
      PinnedBuffer::allocate(int64_t{list_rows_} * int64_t{sizeof(ShortListRow)}, "short lists"));
  groups_ = work.list_groups;
  sampleable_ = work.sampleable;
  set_sampleable(std::vector<uint32_t>(static_cast<size_t>(vocab_ + 31) / 32, ~0U));
  return {};
}

void HeadResults::set_sampleable(std::span<const uint32_t> bits) {
  if (list_rows_ == 0) return;
  std::vector<uint32_t> words(static_cast<size_t>(sampleable_.bytes()) / 4);
  std::ranges::copy(bits, words.begin());
  if (vocab_ % 32 != 0) words[static_cast<size_t>(vocab_) / 32] &= (1U << (vocab_ % 32)) - 1;
  copy_to_device(sampleable_.as<uint32_t>(), words.data(), sampleable_.bytes());
}

void HeadResults::make_short_lists(const Context& context, int32_t begin, int32_t rows) const {
  if (list_rows_ == 0) return;
  short_lists({.logits = context.work.logits.as<float>(),
               .sampleable = sampleable_.as<uint32_t>(),
               .draws = context.batch.draws + begin,
               .rows = rows,
               .vocab = vocab_,
               .groups = groups_.as<ListGroup>(),
               .lists = lists_.as<ShortListRow>() + begin},
              context.launcher.of(Step::short_list));
}

void HeadResults::record(const Context& context, int32_t rows) const {
  head_block(context, nullptr, rows);
  make_short_lists(context, 0, rows);
}

/// Logits of the block of logit rows that begins there.
void HeadResults::compute_row_block(const Context& context, int32_t begin) {
  head_block(context, context.batch.logit_rows + begin, std::min(kRowBlock, rows_ - begin));
  block_begin_ = begin;
}

void HeadResults::run(const Context& context, const DeviceBatch& rows, const Batch& batch,
                      Head head) {
  rows_ = static_cast<int32_t>(batch.logit_rows.size());
  listed_ = !batch.draws.empty() && rows_ <= list_rows_;
  recorded_ = head == Head::recorded;
  device_rows_.clear();
  if (recorded_)
    for (const int32_t row : batch.logit_rows) device_rows_.push_back(rows.device_row(row));
  if (!listed_) make_room(rows_);
  if (recorded_) {
    if (!listed_) copy_rows(context, 0, rows_);
    return;
  }
  for (int32_t begin = 0; begin < rows_; begin += kRowBlock) {
    const int32_t end = std::min(begin + kRowBlock, rows_);
    compute_row_block(context, begin);
    if (listed_)
      make_short_lists(context, begin, end - begin);
    else
      copy_rows(context, begin, end);
  }
}

/// Host memory for so many rows of logits and hidden.
void HeadResults::make_room(int32_t rows) {
  const bool fits = rows <= row_block();
  if (!fits) {
    more_logits_.resize(static_cast<size_t>(rows) * static_cast<size_t>(vocab_));
    more_hidden_.resize(static_cast<size_t>(rows) * static_cast<size_t>(hidden_));
  }
  logits_out_ = fits ? logits_.as<float>() : more_logits_.data();
  hidden_out_ = fits ? hidden_rows_.as<float>() : more_hidden_.data();
}

/// Logit rows [begin, end) of logits and hidden to their places on the host; of a launched pass
/// they are in the block of rows at hand. Runs of neighbours are copied at once.
void HeadResults::copy_rows(const Context& context, int32_t begin, int32_t end) {
  const Workspace& work = context.work;
  const float* hidden = (recorded_ ? work.hidden : work.hidden_rows).as<float>();
  const auto place = [&](int32_t row) {
    return recorded_ ? device_rows_[static_cast<size_t>(row)] : row - block_begin_;
  };
  for (int32_t row = begin; row < end;) {
    int64_t count = 1;
    while (row + count < end && place(row + static_cast<int32_t>(count)) == place(row) + count)
      ++count;
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
  short_lists_.clear();
  if (!listed_)
    return {.logits = {logits_out_, count * static_cast<size_t>(vocab_)},
            .hidden = {hidden_out_, count * static_cast<size_t>(hidden_)},
            .short_lists = {}};
  const std::span rows(lists_.as<ShortListRow>(), static_cast<size_t>(list_rows_));
  for (size_t i = 0; i < count; ++i) {
    const ShortListRow& row = rows[recorded_ ? static_cast<size_t>(device_rows_[i]) : i];
    const auto tokens = static_cast<size_t>(row.count);
    short_lists_.push_back({.tokens = {row.tokens, tokens},
                            .logits = {row.logits, tokens},
                            .all = row.all != 0,
                            .sound = row.sound != 0,
                            .rest = row.rest,
                            .total = row.total,
                            .drawn_begin = row.drawn_begin,
                            .drawn = {row.drawn, static_cast<size_t>(row.drawn_count)},
                            .before = row.before});
  }
  return {.logits = {}, .hidden = {}, .short_lists = short_lists_};
}

std::span<const float> HeadResults::fetch(const Context& context,
                                          std::span<const int32_t> indices) {
  make_room(static_cast<int32_t>(indices.size()));
  float* to = logits_out_;
  for (const int32_t index : indices) {
    CHECK(listed_ && index >= 0 && index < rows_, "logit row ", index, " of ", rows_);
    const int32_t begin = index / kRowBlock * kRowBlock;
    if (!recorded_ && begin != block_begin_) compute_row_block(context, begin);
    const int64_t from =
        recorded_ ? device_rows_[static_cast<size_t>(index)] : index - block_begin_;
    copy_to_host(context, to, context.work.logits.as<float>() + from * vocab_, vocab_);
    to += vocab_;
  }
  CUDA_CHECK(cudaStreamSynchronize(context.launcher.stream));
  return {logits_out_, indices.size() * static_cast<size_t>(vocab_)};
}

}  // namespace nibble::cuda
