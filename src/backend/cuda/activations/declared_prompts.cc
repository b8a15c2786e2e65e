// The rows that are rounded for each product of prompt rows.
#include <algorithm>

#include "backend/cuda/activations/declared.h"
#include "backend/cuda/ops/route/prompt_route.h"

namespace nibble::cuda {

namespace {

/// Rounds rows, or makes codes of them where the product is made of codes.
PromptInput rounded(const Context& context, const RoundInputs& rows) {
  if (in_fp4(context, rows.weight) || in_fp8(context, rows.weight))
    return {.codes = make_quantized_rows(context, rows, context.launcher)};
  round_inputs(rows, context.launcher);
  return {.x = rows.out, .stride = rows.out_stride};
}

}  // namespace

PromptInput prompt_input(const Context& context, const PromptInput& in,
                         const DeviceLinear& weight) {
  if (!rounds(weight)) return in;
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
  static_assert(sizeof(ExpertTile) == 3 * sizeof(int32_t) && offsetof(ExpertTile, begin) == 4);
  quantized_gemm({.x = product.codes,
                  .rows = gemm.rows,
                  .weight = gemm.weight,
                  .up = gemm.up,
                  .output = gemm.output == GemmOutput::swiglu ? QuantizedOutput::swiglu
                            : gemm.output == GemmOutput::f32  ? QuantizedOutput::f32
                                                              : QuantizedOutput::bf16,
                  .y = gemm.y,
                  .y_stride = gemm.y_stride,
                  .experts = {.list = reinterpret_cast<const int32_t*>(gemm.tiles),
                              .stride = 3,
                              .rows_max = kTileTokens,
                              .count = gemm.tile_count,
                              .gather = gemm.gather}},
                 launcher, matrices);
}

}  // namespace nibble::cuda
