// The blocks as sequences of launches in generation arithmetic.
#include "backend/cuda/context.h"

namespace nibble::cuda {

AddNormArgs finish_args(const Context& context, int layer, Half half, int32_t row_begin,
                        AddNormArgs args) {
  const ModelConfig& config = context.config;
  const Workspace& work = context.work;
  const bool last = half == Half::feed_forward && layer + 1 == config.layer_count();
  args.hidden = config.hidden;
  args.eps = config.rms_eps;
  args.norm = half == Half::mixer ? context.layer(layer).post_norm
              : last              ? context.weights.final_norm
                                  : context.layer(layer + 1).input_norm;
  args.h = work.h.as<float>() + int64_t{row_begin} * config.hidden;
  args.x = work.x.as<uint16_t>() + row_begin * work.x_stride;
  args.x_stride = work.x_stride;
  if (last) args.hidden_out = work.hidden.as<float>() + int64_t{row_begin} * config.hidden;
  // The head reads every row as generation arithmetic does.
  if (row_begin >= context.batch.rows && !last) args.packed_from = 0;
  return args;
}

void finish_half(const Context& context, int layer, Half half, int32_t row_begin,
                 const AddNormArgs& args) {
  add_norm(finish_args(context, layer, half, row_begin, args), context.launcher.of(Step::finish));
}

void product(const Context& context, const DeviceLinear& weight, const uint16_t* x,
             int64_t x_stride, float* y) {
  LinearArgs args{.count = 1, .rows = context.batch.rows, .x = x, .x_stride = x_stride};
  args.outputs[0] = {.weight = weight, .y = y, .y_stride = weight.rows};
  linear(args, context.launcher.of(Step::project_out));
}

void embed_block(const Context& context) {
  const Workspace& work = context.work;
  embed({.batch = context.all,
         .table = context.weights.embedding,
         .hidden = context.config.hidden,
         .h = work.h.as<float>(),
         .norm = context.layer(0).input_norm,
         .x = work.x.as<uint16_t>(),
         .x_stride = work.x_stride,
         .eps = context.config.rms_eps,
         .packed_from = context.batch.rows},
        context.launcher);
}

void attention_block(const Context& context, int layer) {
  if (context.prompts.rows > 0) prompt_attention_block(context, layer);
  if (context.batch.rows == 0) return;
  const Workspace& work = context.work;
  const AttentionConfig& config = context.config.attention;
  const AttentionWeights& w = context.layer(layer).attention;
  LinearArgs in{.count = 3,
                .rows = context.batch.rows,
                .x = work.x.as<uint16_t>(),
                .x_stride = work.x_stride};
  in.outputs[0] = {.weight = w.q, .y = work.first.as<float>(), .y_stride = w.q.rows};
  in.outputs[1] = {.weight = w.k, .y = work.second.as<float>(), .y_stride = w.k.rows};
  in.outputs[2] = {.weight = w.v, .y = work.third.as<float>(), .y_stride = w.v.rows};
  linear(in, context.launcher.of(Step::project));
  const AttentionArgs args{.batch = context.batch,
                           .q_heads = config.q_heads,
                           .kv_heads = config.kv_heads,
                           .head_dim = config.head_dim,
                           .output_gate = config.output_gate,
                           .q = work.first.as<float>(),
                           .k = work.second.as<float>(),
                           .v = work.third.as<float>(),
                           .q_norm = w.q_norm,
                           .k_norm = w.k_norm,
                           .eps = context.config.rms_eps,
                           .rope = context.rope,
                           .kv = context.pools.kv(context.config.kind_index(layer)),
                           .splits_max = context.splits_max,
                           .partial = work.partial.as<float>(),
                           .out = work.mixed.as<uint16_t>(),
                           .out_stride = work.mixed_stride};
  attention_prepare(args, context.launcher.of(Step::attend));
  attention_attend(args, context.launcher.of(Step::attend));
  product(context, w.o, work.mixed.as<uint16_t>(), work.mixed_stride, work.y.as<float>());
  finish_half(context, layer, Half::mixer, 0,
              {.rows = context.batch.rows, .y = work.y.as<float>()});
}

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
  in.outputs[0] = {.weight = w.qkv, .y = work.first.as<float>(), .y_stride = w.qkv.rows};
  in.outputs[1] = {.weight = w.z, .y = work.third.as<float>(), .y_stride = w.z.rows};
  in.outputs[2] = {.weight = w.a, .y = gates, .y_stride = work.gate_stride};
  in.outputs[3] = {.weight = w.b, .y = gates + w.a.rows, .y_stride = work.gate_stride};
  linear(in, context.launcher.of(Step::project));
  delta_net({.batch = context.batch,
             .k_heads = config.k_heads,
             .v_heads = config.v_heads,
             .k_dim = config.k_dim,
             .v_dim = config.v_dim,
             .taps = config.conv_kernel,
             .qkv = work.first.as<float>(),
             .convolved = work.second.as<float>(),
             .z = work.third.as<float>(),
             .a = gates,
             .b = gates + w.a.rows,
             .gate_stride = work.gate_stride,
             .conv = w.conv,
             .decay = w.decay,
             .dt_bias = w.dt_bias,
             .norm = w.norm,
             .eps = context.config.rms_eps,
             .state = context.pools.state(context.config.kind_index(layer)),
             .out = work.mixed.as<uint16_t>(),
             .out_stride = work.mixed_stride},
            context.launcher);
  product(context, w.out, work.mixed.as<uint16_t>(), work.mixed_stride, work.y.as<float>());
  finish_half(context, layer, Half::mixer, 0,
              {.rows = context.batch.rows, .y = work.y.as<float>()});
}

namespace {

/// The pieces of work.choices.
Routing routing_of(const Workspace& work, const MoeConfig& config, int32_t slab) {
  const int64_t places = int64_t{slab} * config.top_k;
  auto* ints = work.choices.as<int32_t>();
  return {.experts = ints,
          .weights = reinterpret_cast<float*>(ints + places),
          .active = ints + 3 * places,
          .begin = ints + 3 * places + config.experts,
          .assignments = ints + 2 * places,
          .active_count = ints + 3 * places + 2 * config.experts + 1};
}

void moe_slab(const Context& context, int layer, int32_t row_begin, int32_t rows) {
  const Workspace& work = context.work;
  const MoeConfig& config = *context.config.moe;
  const MoeWeights& w = context.layer(layer).moe;
  const uint16_t* x = work.x.as<uint16_t>() + row_begin * work.x_stride;
  const bool shared = config.shared_width > 0;
  auto* router = work.router.as<float>();
  const int64_t router_stride = config.experts + 1;
  LinearArgs logits{.count = shared ? 2 : 1, .rows = rows, .x = x, .x_stride = work.x_stride};
  logits.outputs[0] = {.weight = w.router, .y = router, .y_stride = router_stride};
  logits.outputs[1] = {
      .weight = w.shared_gate, .y = router + config.experts, .y_stride = router_stride};
  linear(logits, context.launcher.of(Step::router));
  const Routing routing = routing_of(work, config, rows);
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
                  .x = x,
                  .x_stride = work.x_stride,
                  .act = work.act.as<uint16_t>(),
                  .act_stride = work.act_stride,
                  .y = y,
                  .y_stride = context.config.hidden};
  experts_gate_up(args, context.launcher.of(Step::gate_up));
  args.routed_low = args.routed_high = w.experts.down;
  args.shared_low = args.shared_high = w.shared.down;
  experts_down(args, context.launcher.of(Step::down));
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
  for (int32_t begin = 0; begin < context.batch.rows; begin += kSlabRows)
    moe_slab(context, layer, begin, std::min(kSlabRows, context.batch.rows - begin));
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
  experts_gate_up(args, context.launcher.of(Step::gate_up));
  product(context, w.down, work.act.as<uint16_t>(), work.act_stride, work.y.as<float>());
  finish_half(context, layer, Half::feed_forward, 0,
              {.rows = context.batch.rows, .y = work.y.as<float>()});
}

void head_block(const Context& context, const int32_t* rows, int32_t count) {
  const Workspace& work = context.work;
  LinearArgs args{.count = 1,
                  .rows = count,
                  .x = work.x.as<uint16_t>(),
                  .x_stride = work.x_stride,
                  .gather = rows};
  args.outputs[0] = {.weight = context.weights.head,
                     .y = work.logits.as<float>(),
                     .y_stride = context.config.vocab_rows};
  linear(args, context.launcher.of(Step::head));
  if (rows != nullptr)
    gather_rows(work.hidden.as<float>(), rows, count, context.config.hidden,
                work.hidden_rows.as<float>(), context.launcher);
}

}  // namespace nibble::cuda
