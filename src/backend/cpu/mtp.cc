// The MTP layer, which drafts: u = [norm(embedding of a token) | norm(hidden row of the one
// before)] fc^T, then a layer of full attention, a norm and the model's head. model.md 3.2.
#include <algorithm>

#include "backend/cpu/context.h"
#include "backend/cpu/rope.h"
#include "backend/cpu/split.h"
#include "model/host_pools.h"

namespace nibble::cpu {
namespace {

AttentionLayer layer_of(const Context& context) {
  return {.weights = context.weights.mtp->layer,
          .kv_layer = context.config.count(LayerKind::attention),
          .first_key = kDraftEntryFirst};
}

void norm_row(const Context& context, const float* x, const std::vector<float>& weight, float* y) {
  context.kernels.rms_norm({.x = x,
                            .w = weight.data(),
                            .y = y,
                            .n = context.config.hidden,
                            .eps = context.config.rms_eps});
}

/// The second half of a joined row, and the norm of the first, where the embedding is.
void join(const Context& context, int64_t row, const float* hidden_before) {
  float* joined = context.work.joined.row(row);
  norm_row(context, joined, context.weights.mtp->embedding_norm, joined);
  norm_row(context, hidden_before, context.weights.mtp->hidden_norm,
           joined + context.config.hidden);
}

void keep_row(const Context& context, const float* from, float* to) {
  const auto n = static_cast<size_t>(context.config.hidden);
  if (all_finite({from, n}))
    std::copy_n(from, n, to);
  else
    std::fill_n(to, n, 0.0F);
}

/// The hidden rows of a pass, in work.normed, go to the slots that it writes.
void keep_hidden(const Context& context, const Batch& batch) {
  Matrix& hidden = context.work.normed;
  Pools& pools = context.pools;
  for (const BatchSequence& s : batch.sequences) {
    if (s.write == StateWrite::rows) {
      keep_row(context, hidden.row(s.row_begin + s.row_count - 1), pools.hidden(s.state_out));
      continue;
    }
    // Before the saved ones are overwritten: it may be one of them.
    keep_row(context, pools.hidden_before(s.state_in, s.replay), pools.hidden(s.state_out));
    for (int32_t i = 0; i < s.row_count; ++i)
      keep_row(context, hidden.row(s.row_begin + i), pools.saved_hidden(s.state_out, i));
  }
  for (const StateSnapshot& snapshot : batch.snapshots)
    keep_row(context, hidden.row(snapshot.row), pools.hidden(snapshot.slot));
}

/// Joins the rows of a sequence to their tokens' embeddings and sets the angles of their entries.
void join_rows(const Context& context, const Batch& batch, const BatchSequence& sequence) {
  Workspace& work = context.work;
  const auto pairs = static_cast<size_t>(context.rope.pairs());
  split(context.pool, sequence.row_count, context.config.hidden / 2,
        [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t row = sequence.row_begin + i;
            join(context, row,
                 i > 0 ? work.normed.row(row - 1)
                       : context.pools.hidden_before(sequence.state_in, sequence.replay));
            rope_angles(context.rope, position_before(batch, sequence, static_cast<int32_t>(i)),
                        {work.cos.row(row), pairs}, {work.sin.row(row), pairs});
          }
        });
}

/// One step of a draft: memory.in has the hidden rows of the tokens before, and then those that the
/// layer computes. Logits [T, vocab_rows].
std::span<const float> draft_rows(const Context& context, const Batch& entries,
                                  HeadMemory& memory) {
  Workspace& work = context.work;
  const MtpWeights& mtp = *context.weights.mtp;
  const int64_t rows = entries.rows();
  embed_rows(context, entries, work.joined);
  for (int64_t r = 0; r < rows; ++r) join(context, r, memory.in.row(r));
  fill_angles(context.rope, entries, work.cos, work.sin);
  const LinearCall join_call = product(mtp.joined, work.joined, work.hidden, rows);
  context.linears.run({&join_call, 1});
  attention_block(context, layer_of(context), entries);
  if (context.config.moe)
    moe_block(context, mtp.layer, entries);
  else
    dense_mlp_block(context, mtp.layer, entries);
  for (int64_t r = 0; r < rows; ++r)
    norm_row(context, work.hidden.row(r), mtp.norm, memory.in.row(r));
  const PackedLinear& head = mtp.head.rows() > 0 ? mtp.head : context.weights.head;
  const LinearCall call = head_product(head, memory, rows);
  context.linears.run({&call, 1});
  return {reinterpret_cast<const float*>(memory.logits.data()),
          static_cast<size_t>(rows * head.rows())};
}

}  // namespace

void keep_draft_entries(const Context& context, const Batch& batch) {
  Workspace& work = context.work;
  const MtpWeights& mtp = *context.weights.mtp;
  const int64_t rows = batch.rows();
  norm_hidden(context, context.weights.final_norm, rows);
  embed_rows(context, batch, work.joined);
  for (const BatchSequence& sequence : batch.sequences) join_rows(context, batch, sequence);
  keep_hidden(context, batch);
  const LinearCall call = product(mtp.joined, work.joined, work.entries, rows);
  context.linears.run({&call, 1});
  split(context.pool, rows, context.config.hidden / 4, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      norm_row(context, work.entries.row(r), mtp.layer.input_norm, work.normed.row(r));
  });
  keep_keys(context, layer_of(context), batch);
}

DraftOutput draft(const Context& context, const DraftBatch& batch, DraftChoice& choice) {
  const auto most = static_cast<size_t>(batch.sequences.front().count);
  const auto vocab = static_cast<size_t>(context.config.draft_head_rows());
  HeadMemory& memory = context.work.head_of(context.config, std::ssize(batch.sequences));
  std::span<const float> logits;
  choice.tokens.assign(batch.sequences.size() * most, -1);
  for (size_t step = 0; step < most; ++step) {
    const Batch entries = draft_step(batch, static_cast<int32_t>(step), choice.tokens);
    for (int64_t r = 0; step == 0 && r < entries.rows(); ++r) {
      const DraftSequence& s = batch.sequences[static_cast<size_t>(r)];
      std::copy_n(context.pools.hidden_before(s.state, s.replay), context.config.hidden,
                  memory.in.row(r));
    }
    logits = draft_rows(context, entries, memory);
    for (size_t r = 0; r < entries.tokens.size(); ++r) {
      const size_t at = r * most + step;
      if (step > 0 && choice.tokens[at - 1] < 0) continue;
      choice.tokens[at] =
          best_token(logits.subspan(r * vocab, vocab), choice.allowed, context.config.draft_tokens);
    }
  }
  return {.tokens = choice.tokens, .logits = logits};
}

}  // namespace nibble::cpu
