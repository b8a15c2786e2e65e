// Rules, biases and masks are one copy each. A table that gets another sequence, or lacks tokens of
// its own, is brought up to date from the history; usually that is one token a step.
#include "backend/cuda/ops/head/token_chooser.h"

#include <algorithm>

#include "backend/cuda/runtime/device_context.h"

namespace nibble::cuda {
namespace {

void send(const DeviceSlice& to, const PinnedBuffer& from, int64_t bytes, cudaStream_t stream) {
  CUDA_CHECK(cudaMemcpyAsync(to.as<void>(), from.as<void>(), static_cast<size_t>(bytes),
                             cudaMemcpyHostToDevice, stream));
}

}  // namespace

Result<void> TokenChooser::reserve(const ModelConfig& config, const PoolSizes& sizes,
                                   const Workspace& work) {
  sent_ = Event::create();
  vocab_ = config.vocab_rows;
  const ChoiceSizes choice = choice_sizes(config, sizes);
  rows_max_ = static_cast<int32_t>(choice.rows);
  tables_.assign(static_cast<size_t>(choice.tables), {});
  if (rows_max_ == 0) return {};
  mask_words_ = choice_mask_words(vocab_);
  counts_stride_ = choice.counts_stride;
  const ChoiceMemory& memory = work.choice;
  state_ = memory.state;
  rows_ = memory.rows;
  biases_ = memory.biases;
  masks_ = memory.masks;
  sampleable_ = memory.sampleable;
  counts_ = memory.counts;
  counted_ = memory.counted;
  host_rows_ = TRY(PinnedBuffer::allocate(rows_.bytes(), "the rules of choices"));
  host_biases_ = TRY(PinnedBuffer::allocate(biases_.bytes(), "biases"));
  host_masks_ = TRY(PinnedBuffer::allocate(masks_.bytes(), "masks"));
  host_counted_ = TRY(PinnedBuffer::allocate(counted_.bytes(), "counted tokens"));
  results_ = TRY(PinnedBuffer::allocate(rows_max_ * int64_t{sizeof(ChosenRow)}, "chosen tokens"));
  set_sampleable(std::vector<uint32_t>(static_cast<size_t>(vocab_ + 31) / 32, ~0U));
  return {};
}

void TokenChooser::set_sampleable(std::span<const uint32_t> bits) {
  if (rows_max_ == 0) return;
  std::vector<uint32_t> words(static_cast<size_t>(mask_words_));
  std::ranges::copy(bits, words.begin());
  if (vocab_ % 32 != 0) words[static_cast<size_t>(vocab_) / 32] &= (1U << (vocab_ % 32)) - 1;
  copy_to_device(sampleable_.as<uint32_t>(), words.data(), mask_words_ * 4);
}

bool TokenChooser::takes(const Batch& batch) const {
  if (batch.choices.empty() || std::ssize(batch.choices) > rows_max_) return false;
  int64_t biases = 0;
  for (const TokenChoice& choice : batch.choices) {
    biases += std::ssize(choice.bias);
    if (choice.rule.top_logprobs > kTopLogprobsMost) return false;
    const bool counted = choice.history.serial != 0 && choice.history.drafted.empty();
    if (choice.rule.penalizes() && !counted) return false;
  }
  return biases * int64_t{sizeof(LogitBias)} <= biases_.bytes();
}

void TokenChooser::send(const Batch& batch, std::span<const int32_t> logits_rows,
                        const Launcher& launcher) {
  ++pass_;
  counting_from_ = counted_to_ = 0;  // the pass before has ended
  stream_ = launcher.device->copy_stream();
  counting_ = launcher;
  counting_.stream = stream_;
  const std::span rows(host_rows_.as<ChoiceRow>(), batch.choices.size());
  int32_t biases = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const TokenChoice& choice = batch.choices[i];
    rows[i] = {.rule = choice.rule,
               .logits_row = logits_rows[i],
               .counts_row = choice.rule.penalizes() ? table_of(choice.history) : -1,
               .bias_begin = biases,
               .bias_count = static_cast<int32_t>(choice.bias.size())};
    std::ranges::copy(choice.bias, host_biases_.as<LogitBias>() + biases);
    biases += rows[i].bias_count;
  }
  flush_counts();
  send_masks(batch, rows);
  cuda::send(rows_, host_rows_, std::ssize(rows) * int64_t{sizeof(ChoiceRow)}, stream_);
  // The first launch of the pass finds the state clear. It is not cleared after the choice, since
  // the next pass would wait for that.
  clear_choice_state(state_.as<void>(), std::min(std::ssize(rows), int64_t{kRowBlock}), counting_);
  if (biases > 0) cuda::send(biases_, host_biases_, biases * int64_t{sizeof(LogitBias)}, stream_);
  sent_.record(stream_);
  sent_.hold(launcher.stream);
}

void TokenChooser::send_masks(const Batch& batch, std::span<ChoiceRow> rows) {
  int32_t masks = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::span<const uint32_t> mask = batch.choices[i].mask;
    if (mask.empty()) continue;
    std::ranges::copy(mask, host_masks_.as<uint32_t>() + masks * mask_words_);
    rows[i].mask_row = masks++;
  }
  if (masks > 0) cuda::send(masks_, host_masks_, masks * mask_words_ * 4, stream_);
}

/// The table of a sequence, with all of its history counted or about to be.
int32_t TokenChooser::table_of(const TokenHistory& history) {
  size_t at = 0;
  for (size_t i = 0; i < tables_.size(); ++i) {
    if (tables_[i].serial == history.serial) {
      at = i;
      break;
    }
    if (tables_[i].used < tables_[at].used) at = i;
  }
  Table& table = tables_[at];
  if (table.serial != history.serial) {
    CHECK(table.used < pass_, "more sequences with penalties in a pass than ", tables_.size());
    flush_counts();  // in order: what waits may be of the table's last owner
    table = {.serial = history.serial};
    CUDA_CHECK(cudaMemsetAsync(counts_.as<uint16_t>() + static_cast<int64_t>(at) * counts_stride_,
                               0, static_cast<size_t>(counts_stride_) * 2, stream_));
  }
  table.used = pass_;
  count(at, history.prompt, table.prompt, CountedToken::kOfPrompt);
  count(at, history.generated, table.generated, 0);
  return static_cast<int32_t>(at);
}

void TokenChooser::count(size_t table, std::span<const int32_t> tokens, size_t& counted,
                         uint32_t kind) {
  auto* entries = host_counted_.as<CountedToken>();
  const int64_t most = counted_.bytes() / int64_t{sizeof(CountedToken)};
  for (; counted < tokens.size(); ++counted) {
    if (counted_to_ == most) {  // long histories alone fill it, and wait
      flush_counts();
      CUDA_CHECK(cudaStreamSynchronize(stream_));
      counting_from_ = counted_to_ = 0;
    }
    const int64_t index = static_cast<int64_t>(table) * counts_stride_ + tokens[counted];
    entries[counted_to_++] = {static_cast<uint32_t>(index) | kind};
  }
}

void TokenChooser::flush_counts() {
  const int64_t count = counted_to_ - counting_from_;
  if (count == 0) return;
  auto* to = counted_.as<CountedToken>() + counting_from_;
  CUDA_CHECK(cudaMemcpyAsync(to, host_counted_.as<CountedToken>() + counting_from_,
                             static_cast<size_t>(count) * sizeof(CountedToken),
                             cudaMemcpyHostToDevice, stream_));
  count_tokens(to, count, counts_.as<uint16_t>(), counting_);
  counting_from_ = counted_to_;
}

void TokenChooser::choose(const float* logits, int32_t begin, int32_t rows,
                          const Launcher& launcher) {
  if (begin > 0) clear_choice_state(state_.as<void>(), rows, launcher);
  choose_tokens({.logits = logits,
                 .sampleable = sampleable_.as<uint32_t>(),
                 .masks = masks_.as<uint32_t>(),
                 .counts = counts_.as<uint16_t>(),
                 .counts_stride = counts_stride_,
                 .biases = biases_.as<LogitBias>(),
                 .rows_in = rows_.as<ChoiceRow>() + begin,
                 .rows_out = results_.as<ChosenRow>() + begin,
                 .state = state_.as<void>(),
                 .rows = rows,
                 .vocab = vocab_},
                launcher.of(Step::choose));
}

std::span<const ChosenToken> TokenChooser::chosen(int32_t rows) {
  chosen_.clear();
  for (const ChosenRow& row : std::span(results_.as<ChosenRow>(), static_cast<size_t>(rows))) {
    ChosenToken& out = chosen_.emplace_back();
    out.sound = row.sound != 0;
    out.token = row.token;
    if (row.token < 0 || host_rows_.as<ChoiceRow>()[chosen_.size() - 1].rule.top_logprobs < 0)
      continue;
    out.chosen = {row.token, row.logit};
    out.best = row.best;
    out.mass = row.mass;
    out.rank = row.rank;
    out.top.assign(row.top, row.top + row.top_count);
  }
  return chosen_;
}

}  // namespace nibble::cuda
