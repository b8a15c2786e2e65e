// The layer of full attention over joined rows.
#include "backend/reference/mtp.h"

#include <algorithm>

#include "backend/reference/embed.h"
#include "model/host_pools.h"

namespace nibble::reference {
namespace {

/// The batch of the rows' entries: the same, at the rotary positions of the tokens before.
Batch entries_of(const Batch& batch) {
  Batch entries = batch;
  const auto rows = static_cast<size_t>(batch.rows());
  for (const BatchSequence& sequence : batch.sequences)
    for (int32_t i = 0; i < sequence.row_count; ++i)
      for (size_t axis = 0; axis < 3; ++axis)
        entries.positions[axis * rows + static_cast<size_t>(sequence.row_begin + i)] =
            position_before(batch, sequence, i)[axis];
  return entries;
}

std::span<const float> row_of(const std::vector<float>& rows, int32_t row, int width) {
  const auto size = static_cast<size_t>(width);
  return std::span(rows).subspan(static_cast<size_t>(row) * size, size);
}

void keep_row(std::span<const float> from, std::span<float> to) {
  if (all_finite(from))
    std::ranges::copy(from, to.begin());
  else
    std::ranges::fill(to, 0.0F);
}

/// The hidden rows of a pass go to the slots that it writes.
void keep_hidden(const Batch& batch, const std::vector<float>& hidden, int width,
                 StateSlots& slots) {
  for (const BatchSequence& s : batch.sequences) {
    if (s.write == StateWrite::rows) {
      keep_row(row_of(hidden, s.row_begin + s.row_count - 1, width), slots.hidden(s.state_out));
      continue;
    }
    // Before the saved ones are overwritten: it may be one of them.
    keep_row(slots.hidden_before(s.state_in, s.replay), slots.hidden(s.state_out));
    for (int32_t i = 0; i < s.row_count; ++i)
      keep_row(row_of(hidden, s.row_begin + i, width), slots.saved_hidden(s.state_out, i));
  }
  for (const StateSnapshot& snapshot : batch.snapshots)
    keep_row(row_of(hidden, snapshot.row, width), slots.hidden(snapshot.slot));
}

}  // namespace

Result<Mtp> Mtp::load(const Weights& weights, const ModelConfig& config,
                      const LinearOptions& options, PromptRounding rounding) {
  const MtpSources& sources = *weights.mtp();
  Mtp mtp;
  mtp.kv_layer_ = config.count(LayerKind::attention);
  mtp.has_experts_ = config.moe.has_value();
  mtp.embedding_norm_ = TRY(RmsNorm::load(weights, sources.embedding_norm, config));
  mtp.hidden_norm_ = TRY(RmsNorm::load(weights, sources.hidden_norm, config));
  mtp.input_norm_ = TRY(RmsNorm::load(weights, sources.layer.input_norm, config));
  mtp.post_norm_ = TRY(RmsNorm::load(weights, sources.layer.post_norm, config));
  mtp.norm_ = TRY(RmsNorm::load(weights, sources.norm, config));
  mtp.tokens_ = config.draft_tokens;
  mtp.joined_ = TRY(Linear::load(weights, sources.joined, options));
  mtp.head_ = TRY(Linear::load(weights, sources.head, options));
  mtp.attention_ =
      TRY(Attention::load(weights, sources.layer.attention, config, options, rounding));
  mtp.attention_.see_from(kDraftEntryFirst);
  if (mtp.has_experts_) {
    mtp.moe_ = TRY(Moe::load(weights, sources.layer.moe, config, options));
  } else {
    mtp.dense_mlp_ = TRY(DenseMlp::load(weights, sources.layer.dense_mlp, options));
  }
  return mtp;
}

std::vector<float> Mtp::join(const std::vector<float>& embedded,
                             const std::vector<float>& hidden) const {
  const auto e = embedding_norm_.apply(embedded);
  const auto h = hidden_norm_.apply(hidden);
  const auto width = static_cast<ptrdiff_t>(norm_.weight.size());
  std::vector<float> rows;
  for (ptrdiff_t at = 0; at < std::ssize(e); at += width) {
    rows.insert(rows.end(), e.begin() + at, e.begin() + at + width);
    rows.insert(rows.end(), h.begin() + at, h.begin() + at + width);
  }
  return joined_.apply(rows);
}

void Mtp::keep(const Batch& entries, const std::vector<float>& embedded,
               const std::vector<float>& hidden, KvPages& pages) const {
  attention_.store(entries, kv_layer_, input_norm_.apply(join(embedded, hidden)), pages);
  for (const BatchSequence& sequence : entries.sequences)
    for (int32_t i = 0; i < sequence.row_count; ++i) {
      const int32_t* table = &entries.pages[static_cast<size_t>(sequence.page_begin)];
      const int64_t place = int64_t{sequence.kv_begin} + i;
      const auto key = pages.key_line(table, kv_layer_, place);
      const auto value = pages.value_line(table, kv_layer_, place);
      if (place >= kDraftEntryFirst && all_finite(key) && all_finite(value)) continue;
      std::ranges::fill(key, 0.0F);
      std::ranges::fill(value, 0.0F);
    }
}

std::vector<float> Mtp::run(const Batch& entries, const std::vector<float>& embedded,
                            const std::vector<float>& hidden, KvPages& pages) const {
  std::vector<float> u = join(embedded, hidden);
  const auto add = [&u](const std::vector<float>& y) {
    for (size_t i = 0; i < u.size(); ++i) u[i] += y[i];
  };
  add(attention_.run(entries, kv_layer_, input_norm_.apply(u), pages));
  const std::vector<float> x = post_norm_.apply(u);
  add(has_experts_ ? moe_.run(x) : dense_mlp_.run(x));
  return norm_.apply(u);
}

void Mtp::keep_pass(const MtpHost& host, const Batch& batch,
                    const std::vector<float>& hidden) const {
  std::vector<float> before;
  for (const BatchSequence& s : batch.sequences)
    for (int32_t i = 0; i < s.row_count; ++i) {
      const std::span<const float> row = i == 0 ? host.slots.hidden_before(s.state_in, s.replay)
                                                : row_of(hidden, s.row_begin + i - 1, width());
      before.insert(before.end(), row.begin(), row.end());
    }
  keep(entries_of(batch), embed(host.embedding, host.vision, batch, width()), before, host.pages);
  keep_hidden(batch, hidden, width(), host.slots);
}

Mtp::Drafts Mtp::draft(const MtpHost& host, const DraftBatch& batch,
                       std::span<const uint32_t> allowed) const {
  const auto most = static_cast<size_t>(batch.sequences.front().count);
  const Linear& head = head_.rows() > 0 ? head_ : host.output;
  const auto vocab = static_cast<size_t>(head.rows());
  Drafts drafts{.tokens = std::vector<int32_t>(batch.sequences.size() * most, -1), .logits = {}};
  std::vector<float> hidden;  // of the tokens before those of the step
  for (const DraftSequence& s : batch.sequences) {
    const auto row = host.slots.hidden_before(s.state, s.replay);
    hidden.insert(hidden.end(), row.begin(), row.end());
  }
  for (size_t step = 0; step < most; ++step) {
    const Batch entries = draft_step(batch, static_cast<int32_t>(step), drafts.tokens);
    hidden.resize(entries.tokens.size() * static_cast<size_t>(width()));
    hidden = run(entries, embed(host.embedding, nullptr, entries, width()), hidden, host.pages);
    drafts.logits = head.apply(hidden);
    for (size_t i = 0; i < entries.tokens.size(); ++i) {
      if (step > 0 && drafts.tokens[i * most + step - 1] < 0) continue;
      drafts.tokens[i * most + step] =
          best_token(std::span(drafts.logits).subspan(i * vocab, vocab), allowed, tokens_);
    }
  }
  return drafts;
}

}  // namespace nibble::reference
