// This file has the blocks in prompt arithmetic: BF16 between the products, tensor-core kernels for
// each.
#include "backend/cuda/activations/declared.h"
#include "backend/cuda/ops/calibration/device_taps.h"
#include "backend/cuda/ops/norm/norm_rows.h"

namespace nibble::cuda {
namespace {

/// Returns the prompt rows of a buffer that has `width` F32 or BF16 numbers for each row of the
/// batch.
template <typename T, typename Memory>
T* rows_of(const Context& context, const Memory& memory, int64_t width) {
  return memory.template as<T>() + context.batch.rows * width;
}

using Input = PromptInput;
struct Output {
  void* y = nullptr;
  int64_t stride = 0;
  GemmOutput kind = GemmOutput::bf16;
};

/// Makes a product of `in` as it is.
PromptGemm plain_gemm(const Context& context, const Input& in, const DeviceLinear& w,
                      const Output& out) {
  return {.gemm = {.packed_x = in.x,
                   .x_stride = in.stride,
                   .rows = context.prompts.rows,
                   .weight = w,
                   .output = out.kind,
                   .y = out.y,
                   .y_stride = out.stride},
          .codes = in.codes};
}
/// Makes a product of `in` rounded as w declares it; it must run before the next is made.
PromptGemm gemm_of(const Context& context, const Input& in, const DeviceLinear& w,
                   const Output& out) {
  return plain_gemm(context, prompt_input(context, in, w), w, out);
}

void run(const Context& context, const PromptGemm& product, Step step) {
  prompt_gemm(context, product, context.launcher.of(step));
}

Input block_input(const Context& context) {
  const Workspace& work = context.work;
  return {rows_of<uint16_t>(context, work.x, work.x_stride), work.x_stride};
}
/// The same with the codes that the norm at the end of the last feed-forward made of it.
Input mixer_input(const Context& context, int layer) {
  return with_codes(context, block_input(context), layer - 1, Half::feed_forward);
}

/// True if `second` lies right after `first` and both can be one matrix of more rows.
bool adjoin(const DeviceLinear& first, const DeviceLinear& second) {
  const auto plain = [](const DeviceLinear& w) {
    return w.present() && w.format == Format::bf16 && w.rest_rows == 0 &&
           w.activations == ActivationFormat::high;
  };
  return plain(first) && plain(second) && first.cols == second.cols &&
         second.values == first.values + first.rows * value_bytes(first.format, first.cols);
}

/// Two products of the same input whose results lie side by side in F32 rows: one launch where the
/// matrices adjoin, because a narrow matrix alone fills a quarter of the card.
void run_narrow_pair(const Context& context, const DeviceLinear& first, const DeviceLinear& second,
                     float* y, int64_t stride, Step step) {
  const Input x = block_input(context);
  if (adjoin(first, second)) {
    DeviceLinear both = first;
    both.rows += second.rows;
    return run(context, gemm_of(context, x, both, {y, stride, GemmOutput::f32}), step);
  }
  run(context, gemm_of(context, x, first, {y, stride, GemmOutput::f32}), step);
  if (second.present())
    run(context, gemm_of(context, x, second, {y + first.rows, stride, GemmOutput::f32}), step);
}

Input mixed_input(const Context& context) {
  const Workspace& work = context.work;
  return {rows_of<uint16_t>(context, work.mixed, work.mixed_stride), work.mixed_stride};
}

/// Shows calibration the input of all prompt rows.
void show(const Context& context, TapRole role, const Input& in) {
  if (context.taps == nullptr) return;
  context.taps->add(role, {.x = in.x, .stride = in.stride, .rows = context.prompts.rows},
                    context.launcher.stream);
}

/// Adds mixed W^T to h and computes the norm after it.
void close_mixer(const Context& context, int layer, const DeviceLinear& w) {
  show(context, TapRole::mixer_out, mixed_input(context));
  float* y = rows_of<float>(context, context.work.y, context.config.hidden);
  run(context,
      gemm_of(context, mixed_input(context), w, {y, context.config.hidden, GemmOutput::f32}),
      Step::project_out);
  finish_half(context, layer, Half::mixer, context.batch.rows,
              {.rows = context.prompts.rows, .y = y});
}

}  // namespace

void prompt_attention_block(const Context& context, int layer) {
  const Workspace& work = context.work;
  const AttentionConfig& config = context.config.attention;
  const AttentionWeights& w = context.layer(layer).attention;
  // These are the F32 buffers of generation arithmetic, used as BF16.
  auto* q = reinterpret_cast<uint16_t*>(rows_of<float>(context, work.first, w.q.rows));
  auto* k = reinterpret_cast<uint16_t*>(rows_of<float>(context, work.third, w.k.rows + w.v.rows));
  uint16_t* v = k + context.prompts.rows * w.k.rows;
  const Input x = mixer_input(context, layer);
  show(context, TapRole::mixer_in, x);
  run(context, gemm_of(context, x, w.q, {q, w.q.rows}), Step::project);
  run(context, gemm_of(context, x, w.k, {k, w.k.rows}), Step::project);
  run(context, gemm_of(context, x, w.v, {v, w.v.rows}), Step::project);
  const AttentionArgs base = attention_args(context, layer, context.prompts);
  attention_prepare({.base = base, .q = q, .k = k, .v = v}, context.launcher.of(Step::attend));
  const int64_t head_stride = config.output_gate ? 2 * config.head_dim : config.head_dim;
  const FlashPrefill flash{.shape = {.q_heads = config.q_heads,
                                     .kv_heads = config.kv_heads,
                                     .head_dim = config.head_dim},
                           .tiles = context.plan.tiles(),
                           .tile_count = context.plan.tile_count(),
                           .pages = context.prompts.pages,
                           .q = q,
                           .q_stride = w.q.rows,
                           .q_head_stride = head_stride,
                           .kv = base.kv,
                           .value_scale = base.value_scale,
                           .gate = config.output_gate ? q + config.head_dim : nullptr,
                           .gate_stride = w.q.rows,
                           .gate_head_stride = head_stride,
                           .out = rows_of<uint16_t>(context, work.mixed, work.mixed_stride),
                           .out_stride = work.mixed_stride};
  flash_prefill(flash, context.launcher.of(Step::attend));
  close_mixer(context, layer, w.o);
}

void prompt_delta_net_block(const Context& context, int layer) {
  const Workspace& work = context.work;
  const DeltaNetWeights& w = context.layer(layer).delta_net;
  auto* qkv = reinterpret_cast<uint16_t*>(rows_of<float>(context, work.first, w.qkv.rows));
  auto* z = reinterpret_cast<uint16_t*>(rows_of<float>(context, work.third, w.z.rows));
  float* gates = rows_of<float>(context, work.gates, work.gate_stride);
  const Input x = mixer_input(context, layer);
  show(context, TapRole::mixer_in, x);
  run(context, gemm_of(context, x, w.qkv, {qkv, w.qkv.rows}), Step::project);
  run(context, gemm_of(context, x, w.z, {z, w.z.rows}), Step::project);
  run_narrow_pair(context, w.a, w.b, gates, work.gate_stride, Step::project);
  const DeltaPrefill prefill{.shape = delta_shape(context.config),
                             .chunks = context.plan.chunks(),
                             .sequences = context.plan.sequences(),
                             .runs = context.plan.runs(),
                             .groups = context.plan.groups(),
                             .sequence_count = context.plan.sequence_count(),
                             .qkv = qkv,
                             .qkv_stride = w.qkv.rows,
                             .a = gates,
                             .b = gates + w.a.rows,
                             .gate_stride = work.gate_stride,
                             .conv_weight = w.conv,
                             .a_log = w.a_log,
                             .dt_bias = w.dt_bias,
                             .state = context.pools.state(context.config.kind_index(layer)),
                             .z = z,
                             .z_stride = w.z.rows,
                             .norm_weight = w.norm,
                             .eps = context.config.rms_eps,
                             .out = rows_of<uint16_t>(context, work.mixed, work.mixed_stride),
                             .out_stride = work.mixed_stride,
                             .workspace = context.plan.delta_workspace()};
  delta_prefill(prefill, context.launcher.of(Step::recur));
  close_mixer(context, layer, w.out);
}

namespace {

/// Computes the router's logits, the choices, and the assignments sorted by expert.
void prompt_route(const Context& context, const MoeWeights& w) {
  const MoeConfig& config = *context.config.moe;
  const PromptMlpMemory& memory = context.plan.mlp();
  const Launcher launcher = context.launcher.of(Step::route);
  const int64_t stride = config.experts + 1;
  auto* logits = memory.router.as<float>();
  run_narrow_pair(context, w.router, w.shared_gate, logits, stride, Step::router);
  route_top_k({.logits = logits,
               .logits_stride = stride,
               .rows = context.prompts.rows,
               .experts = config.experts,
               .top_k = config.top_k,
               .weights = config.renormalize ? RouteTopK::Weights::renormalized
                                             : RouteTopK::Weights::softmax,
               .chosen = memory.chosen.as<int32_t>(),
               .chosen_weight = memory.chosen_weight.as<float>()},
              launcher);
  route_sort({.chosen = memory.chosen.as<int32_t>(),
              .assignments = context.prompts.rows * config.top_k,
              .experts = config.experts,
              .top_k = config.top_k,
              .scratch = memory.scratch.as<int32_t>(),
              .token = memory.token.as<int32_t>(),
              .position = memory.position.as<int32_t>(),
              .tiles = memory.tiles.as<ExpertTile>(),
              .tile_count = memory.tile_count.as<int32_t>()},
             launcher);
}

/// An Mlp computes act = silu(x gate^T) * (x up^T), then y = act down^T.
struct Mlp {
  const MlpWeights& weights;
  Input x;
  uint16_t* act = nullptr;
  Output y;
};

void run_mlp(const Context& context, const Mlp& mlp, const PromptMlpMemory* experts) {
  const MlpWeights& w = mlp.weights;
  const int64_t act_stride = context.work.act_stride;
  const Input x = experts == nullptr ? prompt_input(context, mlp.x, w.gate)
                                     : sorted_input(context, mlp.x, w.gate);
  PromptGemm up = plain_gemm(context, x, w.gate, {mlp.act, act_stride, GemmOutput::swiglu});
  up.gemm.up = w.up;
  const auto of_experts = [&](PrefillGemm& gemm) {
    gemm.rows = context.prompts.rows * context.config.moe->top_k;
    gemm.tiles = experts->tiles.as<ExpertTile>();
    gemm.tile_count = experts->tile_count.as<int32_t>();
  };
  if (experts != nullptr) {
    of_experts(up.gemm);
    if (x.x == mlp.x.x) up.gemm.gather = experts->token.as<int32_t>();  // else sorted already
  }
  // Calibration sees the rows as they were.
  if (makes_codes(context, w) && context.taps == nullptr) {
    up.act = codes_in(mlp.act, up.gemm.rows, act_stride, w.down);
    up.next = w.down;
  }
  run(context, up, Step::gate_up);
  const Input act{mlp.act, act_stride};
  PromptGemm down =
      plain_gemm(context,
                 up.act.present()     ? Input{.codes = up.act}
                 : experts == nullptr ? prompt_input(context, act, w.down)
                                      : round_sorted(context, mlp.act, act_stride, w.down),
                 w.down, mlp.y);
  if (experts != nullptr) of_experts(down.gemm);
  run(context, down, Step::down);
  if (experts == nullptr) {
    show(context, TapRole::mlp_in, mlp.x);
    show(context, TapRole::mlp_down, {mlp.act, act_stride});
  } else if (context.taps != nullptr) {
    context.taps->add_experts({.x = mlp.x.x, .stride = mlp.x.stride, .rows = context.prompts.rows},
                              {.x = mlp.act, .stride = act_stride, .rows = up.gemm.rows},
                              {.tiles = up.gemm.tiles,
                               .tile_count = up.gemm.tile_count,
                               .token = up.gemm.gather,
                               .assignments = up.gemm.rows},
                              context.launcher.stream);
  }
}

}  // namespace

void prompt_moe_block(const Context& context, int layer) {
  const MoeConfig& config = *context.config.moe;
  const MoeWeights& w = context.layer(layer).moe;
  const PromptMlpMemory& memory = context.plan.mlp();
  const int32_t rows = context.prompts.rows;
  const int64_t hidden = context.config.hidden;
  const int64_t assignments = int64_t{rows} * config.top_k;
  const bool shared = config.shared_width > 0;
  prompt_route(context, w);
  auto* act = memory.act.as<uint16_t>();
  auto* y = memory.y.as<uint16_t>();
  uint16_t* shared_y = y + assignments * hidden;
  const Input x = block_input(context);
  run_mlp(context, {.weights = w.experts, .x = x, .act = act, .y = {y, hidden}}, &memory);
  if (!shared) show(context, TapRole::mlp_in, x);  // the router's
  if (shared)
    run_mlp(context,
            {.weights = w.shared,
             .x = x,
             .act = act + assignments * context.work.act_stride,
             .y = {shared_y, hidden}},
            nullptr);
  const AddNormArgs base = finish_args(context, layer, Half::feed_forward, context.batch.rows,
                                       {.rows = rows,
                                        .top_k = config.top_k,
                                        .weights = memory.chosen_weight.as<float>(),
                                        .shared_gate = memory.router.as<float>() + config.experts,
                                        .gate_stride = config.experts + 1});
  const CombineNormArgs combine{.base = base,
                                .y = y,
                                .position = memory.position.as<int32_t>(),
                                .shared = shared ? shared_y : nullptr};
  const Launcher launcher = context.launcher.of(Step::finish);
  if (const DeviceLinear* next =
          rounded_by_norm(context, layer, Half::feed_forward, PassRows::prompt))
    return combine_norm_rows(combine, rows_by_norm(context, base, *next), launcher);
  combine_norm(combine, launcher);
}

void prompt_dense_mlp_block(const Context& context, int layer) {
  float* y = rows_of<float>(context, context.work.y, context.config.hidden);
  run_mlp(context,
          {.weights = context.layer(layer).dense_mlp,
           .x = with_codes(context, block_input(context), layer, Half::mixer),
           .act = context.plan.mlp().act.as<uint16_t>(),
           .y = {y, context.config.hidden, GemmOutput::f32}},
          nullptr);
  finish_half(context, layer, Half::feed_forward, context.batch.rows,
              {.rows = context.prompts.rows, .y = y});
}

namespace {

/// Keys and values of normed entries x go to their places.
void store_entries(const Context& context, const Input& x) {
  const AttentionWeights& w = context.layer(context.draft_layer()).attention;
  auto* k =
      reinterpret_cast<uint16_t*>(rows_of<float>(context, context.work.first, w.k.rows + w.v.rows));
  uint16_t* v = k + int64_t{context.prompts.rows} * w.k.rows;
  run(context, gemm_of(context, x, w.k, {k, w.k.rows}), Step::project);
  run(context, gemm_of(context, x, w.v, {v, w.v.rows}), Step::project);
  AttentionArgs store = attention_args(context, context.draft_layer(), context.prompts);
  store.q_heads = 0;
  store.batch.positions = store.batch.entry_positions;
  attention_prepare({.base = store, .k = k, .v = v}, context.launcher.of(Step::attend));
}

}  // namespace

void prompt_entries(const Context& context) {
  const Workspace& work = context.work;
  const int64_t hidden = context.config.hidden;
  const Input joined{rows_of<uint16_t>(context, work.entry.joined, work.entry.joined_stride),
                     work.entry.joined_stride};
  float* entries = rows_of<float>(context, work.first, hidden);
  run(context,
      gemm_of(context, joined, context.weights.draft.joined, {entries, hidden, GemmOutput::f32}),
      Step::project);
  uint16_t* x = rows_of<uint16_t>(context, work.entry.x, work.x_stride);
  AddNormArgs norm =
      input_norm_args(context, context.draft_layer(), context.prompts.rows, entries, x);
  norm.packed_from = 0;
  add_norm(norm, context.launcher.of(Step::finish));
  store_entries(context, {x, work.x_stride});
}

}  // namespace nibble::cuda
