// The blocks as sequences of launches in generation arithmetic.
#include <algorithm>
#include <initializer_list>

#include "backend/cuda/activations/declared.h"
#include "backend/cuda/ops/experts/experts_select.h"
#include "backend/cuda/ops/norm/norm_rows.h"

namespace nibble::cuda {

AddNormArgs finish_args(const Context& context, int layer, Half half, int32_t row_begin,
                        AddNormArgs args) {
  const ModelConfig& config = context.config;
  const Workspace& work = context.work;
  const bool last = half == Half::feed_forward && layer + 1 >= config.layer_count();
  args.hidden = config.hidden;
  args.eps = config.rms_eps;
  const float* before_head =
      layer == context.draft_layer() ? context.weights.draft.norm : context.weights.final_norm;
  args.norm = half == Half::mixer ? context.layer(layer).post_norm
              : last              ? before_head
                                  : context.layer(layer + 1).input_norm;
  args.h = work.h.as<float>() + int64_t{row_begin} * config.hidden;
  args.x = work.x.as<uint16_t>() + row_begin * work.x_stride;
  args.x_stride = work.x_stride;
  if (last || in_f32(context))
    args.hidden_out = work.hidden.as<float>() + int64_t{row_begin} * config.hidden;
  // The head reads every row as generation arithmetic does.
  if (row_begin >= context.batch.rows && !last) args.packed_from = 0;
  return args;
}

void finish_half(const Context& context, int layer, Half half, int32_t row_begin,
                 const AddNormArgs& args) {
  const AddNormArgs finish = finish_args(context, layer, half, row_begin, args);
  const Launcher launcher = context.launcher.of(Step::finish);
  if (in_f32(context)) return norm_f32(finish, launcher);
  const PassRows rows = row_begin >= context.batch.rows ? PassRows::prompt : PassRows::generated;
  if (const DeviceLinear* next = rounded_by_norm(context, layer, half, rows))
    return add_norm_rows(finish, rows_by_norm(context, finish, *next), launcher);
  add_norm(finish, launcher);
}

void add_product(const Context& context, const DeviceLinear& weight, const uint16_t* x,
                 int64_t x_stride, const QuantizedInput& codes) {
  LinearArgs args{.count = 1, .rows = context.batch.rows, .x = x, .x_stride = x_stride};
  args.outputs[0] = {.weight = weight,
                     .y = context.work.h.as<float>(),
                     .y_stride = context.config.hidden,
                     .finish = Finish::add};
  linear(context, args, context.launcher.of(Step::project_out), codes);
}

namespace {

/// The norm before a half, for products that compute it themselves; of several rows the first
/// product does and leaves the result in work.x.
NormInput norm_before(const Context& context, int layer, Half half) {
  const LayerWeights& w = context.layer(layer);
  return {.h = context.work.h.as<float>(),
          .weight = half == Half::mixer ? w.input_norm : w.post_norm,
          .columns = context.config.hidden,
          .eps = context.config.rms_eps,
          .x = context.work.x.as<uint16_t>(),
          .x_stride = context.work.x_stride};
}

LinearArgs router_args(const Context& context, int layer, int32_t row_begin, int32_t rows) {
  const Workspace& work = context.work;
  const MoeConfig& config = *context.config.moe;
  const MoeWeights& w = context.layer(layer).moe;
  auto* logits = work.router.as<float>();
  const int64_t stride = config.experts + 1;
  LinearArgs args{.count = config.shared_width > 0 ? 2 : 1,
                  .rows = rows,
                  .x = work.x.as<uint16_t>() + row_begin * work.x_stride,
                  .x_stride = work.x_stride};
  args.outputs[0] = {.weight = w.router, .y = logits, .y_stride = stride};
  args.outputs[1] = {.weight = w.shared_gate, .y = logits + config.experts, .y_stride = stride};
  return args;
}

/// True if a half can take the norm of its rows as its input.
bool takes_norm(const Context& context, int layer, Half half) {
  const int32_t rows = context.batch.rows;
  if (context.config.hidden % 4 != 0 || !makes_inputs(context)) return false;
  if (rows != 1)
    return half == Half::feed_forward && context.config.moe && rows <= kRowBlock &&
           norms_rows(router_args(context, layer, 0, rows), context.launcher.card);
  const LayerWeights& w = context.layer(layer);
  const auto all_fit = [](std::initializer_list<const DeviceLinear*> weights) {
    return std::ranges::all_of(
        weights, [](const DeviceLinear* x) { return !x->present() || inputs_fit(*x); });
  };
  if (half == Half::mixer)
    return w.delta_net.qkv.present()
               ? all_fit({&w.delta_net.qkv, &w.delta_net.z, &w.delta_net.a, &w.delta_net.b})
               : all_fit({&w.attention.q, &w.attention.k, &w.attention.v});
  if (!context.config.moe || !all_fit({&w.moe.router, &w.moe.shared_gate})) return false;
  const MlpWeights& experts = w.moe.experts;
  const MlpWeights& shared = w.moe.shared;
  const int32_t top_k = context.config.moe->top_k;
  return experts_take_a_row({.routed_low = experts.gate,
                             .routed_high = experts.up,
                             .shared_low = shared.gate,
                             .shared_high = shared.up,
                             .top_k = top_k},
                            {.routed_low = experts.down,
                             .routed_high = experts.down,
                             .shared_low = shared.down,
                             .shared_high = shared.down,
                             .top_k = top_k},
                            context.launcher.card);
}

/// Computes the norm after half `half` of `layer`, unless the next half computes it itself.
void norm_after(const Context& context, int layer, Half half) {
  const bool last = half == Half::feed_forward && layer + 1 >= context.config.layer_count();
  const int next_layer = half == Half::mixer ? layer : layer + 1;
  const Half next = half == Half::mixer ? Half::feed_forward : Half::mixer;
  if (last || !takes_norm(context, next_layer, next))
    finish_half(context, layer, half, 0, {.rows = context.batch.rows});
}

}  // namespace

AddNormArgs input_norm_args(const Context& context, int layer, int32_t rows, float* h,
                            uint16_t* x) {
  return {.rows = rows,
          .hidden = context.config.hidden,
          .h = h,
          .norm = context.layer(layer).input_norm,
          .x = x,
          .x_stride = context.work.x_stride,
          .eps = context.config.rms_eps};
}

void norm_input(const Context& context, int layer) {
  if (takes_norm(context, layer, Half::mixer)) return;
  add_norm(input_norm_args(context, layer, context.batch.rows, context.work.h.as<float>(),
                           context.work.x.as<uint16_t>()),
           context.launcher.of(Step::finish));
}

void embed_block(const Context& context) {
  const Workspace& work = context.work;
  const EmbedArgs args{.batch = context.all,
                       .table = context.weights.embedding,
                       .hidden = context.config.hidden,
                       .h = work.h.as<float>(),
                       .norm = context.layer(0).input_norm,
                       .x = work.x.as<uint16_t>(),
                       .x_stride = work.x_stride,
                       .eps = context.config.rms_eps,
                       .packed_from = context.batch.rows};
  embed(args, context.launcher);
  if (in_f32(context)) finish_embed_f32(context, args);
}

AttentionArgs attention_args(const Context& context, int layer, const BatchView& batch) {
  const AttentionConfig& config = context.config.attention;
  const AttentionWeights& w = context.layer(layer).attention;
  return {.batch = batch,
          .q_heads = config.q_heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .output_gate = config.output_gate,
          .q_norm = w.q_norm,
          .k_norm = w.k_norm,
          .eps = context.config.rms_eps,
          .rope = context.rope,
          .kv = context.pools.kv(context.kv_layer(layer)),
          .value_scale = w.value_scale,
          .skips_first = layer == context.draft_layer(),
          .splits_max = context.splits_max};
}

void attention_block(const Context& context, int layer) {
  if (context.prompts.rows > 0) prompt_attention_block(context, layer);
  if (context.batch.rows == 0) return;
  const Workspace& work = context.work;
  const AttentionWeights& w = context.layer(layer).attention;
  LinearArgs in{.count = 3,
                .rows = context.batch.rows,
                .x = work.x.as<uint16_t>(),
                .x_stride = work.x_stride};
  in.outputs[0] = {.weight = w.q, .y = work.first.as<float>(), .y_stride = w.q.rows};
  auto* k = work.third.as<float>();
  float* v = k + context.batch.rows * w.k.rows;
  in.outputs[1] = {.weight = w.k, .y = k, .y_stride = w.k.rows};
  in.outputs[2] = {.weight = w.v, .y = v, .y_stride = w.v.rows};
  if (takes_norm(context, layer, Half::mixer)) in.norm = norm_before(context, layer, Half::mixer);
  linear(context, in, context.launcher.of(Step::project),
         codes_by_norm(context, layer - 1, Half::feed_forward));
  AttentionArgs args = attention_args(context, layer, context.batch);
  args.q = work.first.as<float>();
  args.k = k;
  args.v = v;
  args.partial = work.partial.as<uint8_t>();
  args.out = work.mixed.as<uint16_t>();
  args.out_stride = work.mixed_stride;
  const Launcher launcher = context.launcher.of(Step::attend);
  in_f32(context) ? attention_f32(args, launcher) : attention(args, launcher);
  add_product(context, w.o, work.mixed.as<uint16_t>(), work.mixed_stride);
  norm_after(context, layer, Half::mixer);
}

namespace {

/// True if every sequence has one row and the projection ends with the convolution.
bool convolves_inline(const Context& context, const DeviceLinear& qkv) {
  return makes_inputs(context) && context.batch.extent().single_rows() && !context.batch.replays &&
         context.batch.rows <= kConvolveRowsMax && inputs_fit(qkv) &&
         context.config.delta_net.conv_kernel >= 2 &&
         context.config.delta_net.conv_kernel <= kConvolveTapsMax;
}

}  // namespace

void delta_net_block(const Context& context, int layer) {
  if (context.prompts.rows > 0) prompt_delta_net_block(context, layer);
  if (context.batch.rows == 0) return;
  const Workspace& work = context.work;
  const DeltaNetConfig& config = context.config.delta_net;
  const DeltaNetWeights& w = context.layer(layer).delta_net;
  auto* gates = work.gates.as<float>();
  LinearArgs in{.count = 4,
                .rows = context.batch.rows,
                .x = work.x.as<uint16_t>(),
                .x_stride = work.x_stride};
  const StateView state = context.pools.state(context.config.kind_index(layer));
  const bool convolves = convolves_inline(context, w.qkv);
  in.outputs[0] = {.weight = w.qkv,
                   .y = convolves ? work.convolved.as<float>() : work.first.as<float>(),
                   .y_stride = w.qkv.rows,
                   .finish = convolves ? Finish::convolve : Finish::store};
  in.convolve = {.batch = context.batch,
                 .state = state,
                 .weights = w.conv,
                 .taps = config.conv_kernel,
                 .channels = config.qkv_rows()};
  in.outputs[1] = {.weight = w.z, .y = work.third.as<float>(), .y_stride = w.z.rows};
  in.outputs[2] = {.weight = w.a, .y = gates, .y_stride = work.gate_stride};
  in.outputs[3] = {.weight = w.b, .y = gates + w.a.rows, .y_stride = work.gate_stride};
  if (takes_norm(context, layer, Half::mixer)) in.norm = norm_before(context, layer, Half::mixer);
  linear(context, in, context.launcher.of(Step::project),
         codes_by_norm(context, layer - 1, Half::feed_forward));
  delta_net({.batch = context.batch,
             .k_heads = config.k_heads,
             .v_heads = config.v_heads,
             .k_dim = config.k_dim,
             .v_dim = config.v_dim,
             .taps = config.conv_kernel,
             .qkv = convolves ? nullptr : work.first.as<float>(),
             .convolved = work.convolved.as<float>(),
             .replayed = work.replayed.as<float>(),
             .replay_rows = context.pools.replay_rows(),
             .z = work.third.as<float>(),
             .a = gates,
             .b = gates + w.a.rows,
             .gate_stride = work.gate_stride,
             .conv = w.conv,
             .decay = w.decay,
             .dt_bias = w.dt_bias,
             .norm = w.norm,
             .eps = context.config.rms_eps,
             .state = state,
             .out = work.mixed.as<uint16_t>(),
             .out_stride = work.mixed_stride,
             .kernels = in_f32(context) ? DeltaNetKernels::in_parts : DeltaNetKernels::automatic},
            context.launcher);
  add_product(context, w.out, work.mixed.as<uint16_t>(), work.mixed_stride);
  norm_after(context, layer, Half::mixer);
}

namespace {

/// Returns the parts of work.choices.
Routing routing_of(const Workspace& work, const MoeConfig& config, int32_t row_block) {
  const int64_t places = int64_t{row_block} * config.top_k;
  auto* ints = work.choices.as<int32_t>();
  auto* counts = ints + 3 * places + 2 * config.experts + 1;
  auto* items = ints + choice_ints(row_block, config.top_k, config.experts) - 4 * places;
  return {.experts = ints,
          .weights = reinterpret_cast<float*>(ints + places),
          .active = ints + 3 * places,
          .begin = ints + 3 * places + config.experts,
          .assignments = ints + 2 * places,
          .active_count = counts,
          .active_sum = counts + 1,
          .items = reinterpret_cast<int4*>(items),
          .item_count = counts + 2,
          .announced = counts + 3};
}

void moe_row_block(const Context& context, int layer, int32_t row_begin, int32_t rows) {
  const Workspace& work = context.work;
  const MoeConfig& config = *context.config.moe;
  const MoeWeights& w = context.layer(layer).moe;
  const bool shared = config.shared_width > 0;
  LinearArgs logits = router_args(context, layer, row_begin, rows);
  float* router = logits.outputs[0].y;
  const int64_t router_stride = logits.outputs[0].y_stride;
  const bool norms = takes_norm(context, layer, Half::feed_forward);
  if (norms) logits.norm = norm_before(context, layer, Half::feed_forward);
  const bool alone = norms && rows == 1;
  linear(context, logits, context.launcher.of(Step::router));
  const Routing routing = routing_of(work, config, rows);
  if (!alone)
    route({.logits = router,
           .stride = router_stride,
           .kv_index = context.batch.kv_index + row_begin,
           .rows = rows,
           .experts = config.experts,
           .top_k = config.top_k,
           .renormalize = config.renormalize,
           .routing = routing},
          context.launcher.of(Step::route));
  auto* y = work.expert_y.as<float>();
  const int64_t shared_begin = int64_t{rows} * config.top_k;
  ExpertArgs args{.routed_low = w.experts.gate,
                  .routed_high = w.experts.up,
                  .shared_low = w.shared.gate,
                  .shared_high = w.shared.up,
                  .routing = routing,
                  .rows = rows,
                  .experts = config.experts,
                  .top_k = config.top_k,
                  .shared_begin = shared_begin,
                  .x = logits.x,
                  .x_stride = logits.x_stride,
                  .act = work.act.as<uint16_t>(),
                  .act_stride = work.act_stride,
                  .y = y,
                  .y_stride = context.config.hidden,
                  .norm = alone ? logits.norm : NormInput{},
                  .logits = router,
                  .shared_gate = router + config.experts,
                  .renormalize = config.renormalize};
  const ActCodes act =
      experts_gate_up(context, args, {.routed_down = w.experts.down, .shared_down = w.shared.down},
                      context.launcher.of(Step::gate_up));
  args.routed_low = args.routed_high = w.experts.down;
  args.shared_low = args.shared_high = w.shared.down;
  if (alone) args.h = work.h.as<float>();
  experts_down(context, args, act, context.launcher.of(Step::down));
  if (alone) return norm_after(context, layer, Half::feed_forward);
  finish_half(context, layer, Half::feed_forward, row_begin,
              {.rows = rows,
               .y = y,
               .top_k = config.top_k,
               .weights = routing.weights,
               .shared = shared ? y + shared_begin * context.config.hidden : nullptr,
               .shared_gate = router + config.experts,
               .gate_stride = router_stride});
}

}  // namespace

void moe_block(const Context& context, int layer) {
  if (context.prompts.rows > 0) prompt_moe_block(context, layer);
  if (context.batch.rows == 0) return;
  for (int32_t begin = 0; begin < context.batch.rows; begin += kMoeRowBlock)
    moe_row_block(context, layer, begin, std::min(kMoeRowBlock, context.batch.rows - begin));
}

void dense_mlp_block(const Context& context, int layer) {
  if (context.prompts.rows > 0) prompt_dense_mlp_block(context, layer);
  if (context.batch.rows == 0) return;
  const Workspace& work = context.work;
  const MlpWeights& w = context.layer(layer).dense_mlp;
  ExpertArgs args{.shared_low = w.gate,
                  .shared_high = w.up,
                  .rows = context.batch.rows,
                  .x = work.x.as<uint16_t>(),
                  .x_stride = work.x_stride,
                  .act = work.act.as<uint16_t>(),
                  .act_stride = work.act_stride};
  const ActCodes act = experts_gate_up(
      context, args, {.shared_down = w.down, .codes = codes_by_norm(context, layer, Half::mixer)},
      context.launcher.of(Step::gate_up));
  add_product(context, w.down, work.act.as<uint16_t>(), work.act_stride, act.shared);
  norm_after(context, layer, Half::feed_forward);
}

void head_product(const Context& context, const DeviceLinear& head, const int32_t* rows,
                  int32_t count) {
  const Workspace& work = context.work;
  LinearArgs args{.count = 1,
                  .rows = count,
                  .x = work.x.as<uint16_t>(),
                  .x_stride = work.x_stride,
                  .gather = rows};
  args.outputs[0] = {.weight = head, .y = work.logits.as<float>(), .y_stride = head.rows};
  linear(context, args, context.launcher.of(Step::head));
}

void head_block(const Context& context, const int32_t* rows, int32_t count) {
  const Workspace& work = context.work;
  head_product(context, context.weights.head, rows, count);
  if (rows != nullptr)
    gather_rows(work.hidden.as<float>(), rows, count, context.config.hidden,
                work.hidden_rows.as<float>(), context.launcher);
}

}  // namespace nibble::cuda
