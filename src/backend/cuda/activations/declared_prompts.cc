// The rows that are rounded for each product of prompt rows.
#include <algorithm>

#include "backend/cuda/activations/declared.h"
#include "backend/cuda/ops/route/prompt_route.h"

namespace nibble::cuda {

namespace {

/// True if inputs of both become the same codes: they are of one matrix, or scales are made of
/// rows.
bool rounds_alike(const Context& context, const DeviceLinear& a, const DeviceLinear& b) {
  const bool of_rows = !has_input_scale(a.activations) && a.activations == b.activations;
  return &a == &b || (of_rows && in_fp8(context, a) && in_fp8(context, b));
}

/// Returns the codes that norms make of the rows of a pass, from row `first` on.
QuantizedInput ahead_of(const Context& context, const DeviceLinear& weight, int64_t first) {
  QuantizedInput rows =
      cut_rows(context.work.ahead, context.batch.rows + context.prompts.rows, weight);
  rows.codes += first * value_bytes(weight.format, weight.cols);
  if (rows.scales != nullptr) rows.scales += first * (weight.cols / kNvfp4Group);
  if (rows.factors != nullptr) rows.factors += first * rows.factors_each;
  return rows;
}

/// The lists of experts' rows.
QuantizedExperts prompt_lists(const PromptMlpMemory& memory) {
  static_assert(sizeof(ExpertTile) == 3 * sizeof(int32_t) && offsetof(ExpertTile, begin) == 4);
  return {.list = memory.tiles.as<int32_t>(),
          .stride = 3,
          .rows_max = kTileTokens,
          .count = memory.tile_count.as<int32_t>()};
}

/// Rounds rows, or makes codes of them where the product is made of codes.
PromptInput rounded(const Context& context, const RoundInputs& rows) {
  if (in_fp4(context, rows.weight) || in_fp8(context, rows.weight))
    return {.codes = make_quantized_rows(context, rows, context.launcher)};
  round_inputs(rows, context.launcher);
  return {.x = rows.out, .stride = rows.out_stride};
}

}  // namespace

const DeviceLinear* rounded_by_norm(const Context& context, int layer, Half half, PassRows rows) {
  const ModelConfig& config = context.config;
  const bool mixer = half == Half::feed_forward;  // reads it next
  const int next = mixer ? layer + 1 : layer;
  if (!declares(context) || layer < 0 || next >= config.layer_count() || config.hidden % 4 != 0)
    return nullptr;
  // Experts round each row as often as it is chosen, under the scales of those that it is sent to.
  if (!mixer && config.moe) return nullptr;
  const LayerWeights& w = context.layer(next);
  const bool attends = config.layers[static_cast<size_t>(next)] == LayerKind::attention;
  const DeviceLinear& first = !mixer ? w.dense_mlp.gate : attends ? w.attention.q : w.delta_net.qkv;
  const bool codes = (in_fp4(context, first) && !in_blocks(first)) ||
                     (rows == PassRows::prompt && in_fp8(context, first));
  return codes ? &first : nullptr;
}

QuantizeRows rows_by_norm(const Context& context, const AddNormArgs& norm,
                          const DeviceLinear& weight) {
  return {.weight = weight,
          .count = norm.rows,
          .x = norm.x,
          .x_stride = norm.x_stride,
          .order = norm.packed_from == 0 ? ColumnOrder::packed : ColumnOrder::plain,
          .out = ahead_of(context, weight,
                          (norm.x - context.work.x.as<uint16_t>()) / context.work.x_stride)};
}

PromptInput with_codes(const Context& context, const PromptInput& in, int layer, Half half) {
  const DeviceLinear* weight = rounded_by_norm(context, layer, half, PassRows::prompt);
  if (weight == nullptr) return in;
  PromptInput both = in;
  both.codes = ahead_of(context, *weight, context.batch.rows);
  both.made_for = weight;
  return both;
}

QuantizedInput codes_by_norm(const Context& context, int layer, Half half) {
  const DeviceLinear* weight = rounded_by_norm(context, layer, half, PassRows::generated);
  return weight == nullptr ? QuantizedInput{} : ahead_of(context, *weight, 0);
}

PromptInput prompt_input(const Context& context, const PromptInput& in,
                         const DeviceLinear& weight) {
  if (!rounds(weight)) return {.x = in.x, .stride = in.stride};
  if (in.made_for != nullptr && rounds_alike(context, *in.made_for, weight))
    return {.codes = in.codes};
  return rounded(context, {.weight = weight,
                           .count = context.prompts.rows,
                           .x = in.x,
                           .x_stride = in.stride,
                           .out = context.work.rounded.as<uint16_t>(),
                           .out_stride = weight.cols,
                           .order = ColumnOrder::packed});
}

PromptInput sorted_input(const Context& context, const PromptInput& in,
                         const DeviceLinear& weight) {
  if (!rounds(weight)) return in;
  const PromptMlpMemory& memory = context.plan.mlp();
  const int32_t top_k = context.config.moe->top_k;
  if (in_blocks(weight))
    group_rows({.lists = prompt_lists(memory), .groups = groups_of(context)}, context.launcher);
  return rounded(context, {.weight = weight,
                           .count = context.prompts.rows * top_k,
                           .x = in.x,
                           .x_stride = in.stride,
                           .out = context.work.rounded.as<uint16_t>(),
                           .out_stride = weight.cols,
                           .share = top_k,
                           .to = memory.position.as<int32_t>(),
                           .matrix = memory.chosen.as<int32_t>(),
                           .order = ColumnOrder::packed});
}

PromptInput round_sorted(const Context& context, uint16_t* act, int64_t stride,
                         const DeviceLinear& weight) {
  if (!rounds(weight)) return {.x = act, .stride = stride};
  const PromptMlpMemory& memory = context.plan.mlp();
  return rounded(context, {.weight = weight,
                           .count = context.prompts.rows * context.config.moe->top_k,
                           .x = act,
                           .x_stride = stride,
                           .out = act,
                           .out_stride = stride,
                           .from = memory.position.as<int32_t>(),
                           .to = memory.position.as<int32_t>(),
                           .matrix = memory.chosen.as<int32_t>(),
                           .order = ColumnOrder::packed});
}

void prompt_gemm(const Context& context, const PromptGemm& product, const Launcher& launcher) {
  const PrefillGemm& gemm = product.gemm;
  const bool experts = gemm.tiles != nullptr;
  // Evenly spread choices of `rows` assignments reach as many experts as there are rows.
  const int64_t matrices = experts ? std::min(gemm.rows, context.config.moe->experts) : 1;
  if (!product.codes.present()) return prefill_gemm(gemm, launcher, matrices);
  const bool grouped = experts && in_blocks(gemm.weight);
  const ExpertGroups groups = grouped ? groups_of(context) : ExpertGroups();
  QuantizedExperts lists = experts ? prompt_lists(context.plan.mlp()) : QuantizedExperts();
  lists.gather = gemm.gather;
  lists.groups = grouped ? &groups : nullptr;
  quantized_gemm({.x = product.codes,
                  .rows = gemm.rows,
                  .weight = gemm.weight,
                  .up = gemm.up,
                  .output = product.act.present()               ? QuantizedOutput::swiglu_codes
                            : gemm.output == GemmOutput::swiglu ? QuantizedOutput::swiglu
                            : gemm.output == GemmOutput::f32    ? QuantizedOutput::f32
                                                                : QuantizedOutput::bf16,
                  .y = gemm.y,
                  .y_stride = gemm.y_stride,
                  .codes = product.act,
                  .next = product.next,
                  .experts = lists},
                 launcher, matrices);
}

}  // namespace nibble::cuda
