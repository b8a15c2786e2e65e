// The layer that drafts: the entries that a pass keeps of all its rows, and a step of a round of
// drafts. Generated rows go first, then those of prompts, in the arithmetic of each.
#include "backend/cuda/activations/declared.h"

namespace nibble::cuda {
namespace {

JoinArgs join_args(const Context& context, const BatchView& batch) {
  const Workspace& work = context.work;
  return {.batch = batch,
          .table = context.weights.embedding,
          .hidden = context.config.hidden,
          .embedding_norm = context.weights.draft.embedding_norm,
          .hidden_norm = context.weights.draft.hidden_norm,
          .eps = context.config.rms_eps,
          .slots = context.pools.hidden(),
          .joined = work.entry.joined.as<uint16_t>(),
          .joined_stride = work.entry.joined_stride};
}

/// Products of the joined rows of generated tokens: `y` [rows][hidden].
void join_product(const Context& context, float* y) {
  const EntryMemory& entry = context.work.entry;
  LinearArgs args{.count = 1,
                  .rows = context.batch.rows,
                  .x = entry.joined.as<uint16_t>(),
                  .x_stride = entry.joined_stride};
  args.outputs[0] = {
      .weight = context.weights.draft.joined, .y = y, .y_stride = context.config.hidden};
  linear(context, args, context.launcher.of(Step::project));
}

/// Keys and values of the entries of generated rows.
void generated_entries(const Context& context) {
  const Workspace& work = context.work;
  const LayerWeights& layer = context.layer(context.draft_layer());
  auto* entries = work.first.as<float>();
  join_product(context, entries);
  auto* x = work.entry.x.as<uint16_t>();
  add_norm(input_norm_args(context, context.draft_layer(), context.batch.rows, entries, x),
           context.launcher.of(Step::finish));
  const AttentionWeights& w = layer.attention;
  float* k = entries;
  float* v = k + int64_t{context.batch.rows} * w.k.rows;
  LinearArgs args{.count = 2, .rows = context.batch.rows, .x = x, .x_stride = work.x_stride};
  args.outputs[0] = {.weight = w.k, .y = k, .y_stride = w.k.rows};
  args.outputs[1] = {.weight = w.v, .y = v, .y_stride = w.v.rows};
  linear(context, args, context.launcher.of(Step::project));
  AttentionArgs store = attention_args(context, context.draft_layer(), context.batch);
  store.k = k;
  store.v = v;
  store.batch.positions = store.batch.entry_positions;
  attention_store(store, context.launcher.of(Step::attend));
}

}  // namespace

void draft_entries_block(const Context& context) {
  const float* hidden = context.work.hidden.as<float>();
  JoinArgs join = join_args(context, context.all);
  join.pass = hidden;
  join.packed_from = context.batch.rows;
  join_rows(join, context.launcher.of(Step::embed));
  keep_hidden({.batch = context.all,
               .hidden = context.config.hidden,
               .pass = hidden,
               .slots = context.pools.hidden()},
              context.launcher.of(Step::embed));
  if (context.batch.rows > 0) generated_entries(context);
  if (context.prompts.rows > 0) prompt_entries(context);
}

void draft_step_block(const Context& context, const DraftRows& rows) {
  const Workspace& work = context.work;
  const int layer = context.draft_layer();
  JoinArgs join = join_args(context, context.batch);
  join.before = work.draft.before.as<float>();
  join_rows(join, context.launcher.of(Step::embed));
  join_product(context, work.h.as<float>());
  norm_input(context, layer);
  attention_block(context, layer);
  context.config.moe ? moe_block(context, layer) : dense_mlp_block(context, layer);
  const WeightStore::Draft& draft = context.weights.draft;
  const DeviceLinear& head = draft.head.present() ? draft.head : context.weights.head;
  head_product(context, head, nullptr, context.batch.rows);
  take_draft({.rows = rows,
              .logits = work.logits.as<float>(),
              .vocab = head.rows,
              .tokens = draft.tokens,
              .sampleable = work.choice.sampleable.as<uint32_t>(),
              .hidden = work.hidden.as<float>(),
              .before = work.draft.before.as<float>(),
              .hidden_width = context.config.hidden},
             context.launcher.of(Step::choose));
}

}  // namespace nibble::cuda
