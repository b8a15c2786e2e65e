// The rows that are rounded for each product of generation; those of prompts: declared_prompts.cc.
#include "backend/cuda/activations/declared.h"

#include "backend/cuda/activations/activation_rule.h"

namespace nibble::cuda {

bool declares(const Context& context) { return context.work.rounded.bytes() > 0; }
bool makes_inputs(const Context& context) { return !declares(context) && !in_f32(context); }

void linear(const Context& context, const LinearArgs& args, const Launcher& launcher,
            const QuantizedInput& codes) {
  if (in_f32(context)) return linear_f32(args, launcher);
  if (!declares(context)) return linear(args, launcher);
  LinearArgs one = args;
  one.count = 1;
  for (int i = 0; i < args.count; ++i) {
    one.outputs[0] = args.outputs[i];
    const DeviceLinear& weight = args.outputs[i].weight;
    one.x = args.x;
    one.x_stride = args.x_stride;
    one.gather = args.gather;
    if (in_fp4(context, weight)) {
      linear_fp4(context, one, i == 0 ? codes : QuantizedInput{}, launcher);
      continue;
    }
    if (rounds(weight)) {
      auto* out = context.work.rounded.as<uint16_t>();
      round_inputs({.weight = weight,
                    .count = args.rows,
                    .x = args.x,
                    .x_stride = args.x_stride,
                    .out = out,
                    .out_stride = weight.cols,
                    .from = args.gather},
                   launcher);
      one.x = out;
      one.x_stride = weight.cols;
      one.gather = nullptr;
    }
    linear(one, launcher);
  }
}

ActCodes experts_gate_up(const Context& context, const ExpertArgs& args, const GateUpWays& ways,
                         const Launcher& launcher) {
  ActCodes act;
  if (!declares(context)) {
    in_f32(context) ? experts_gate_up_f32(context, args, launcher)
                    : experts_gate_up(args, launcher);
    return act;
  }
  auto* out = context.work.rounded.as<uint16_t>();
  ExpertArgs routed = args;
  routed.shared_low = routed.shared_high = {};
  const RoundInputs rounding{
      .x = args.x, .x_stride = args.x_stride, .out = out, .out_stride = args.x_stride};
  if (in_fp4(context, args.routed_low, args.routed_high)) {
    act.routed = gate_up_fp4(context, args,
                             {.which = ExpertMatrices::routed, .down = ways.routed_down}, launcher);
  } else if (args.routed_low.present()) {
    if (rounds(args.routed_low)) {
      RoundInputs each = rounding;
      each.weight = args.routed_low;
      each.count = args.rows * args.top_k;
      each.share = args.top_k;
      each.matrix = args.routing.experts;
      round_inputs(each, launcher);
      // Each assignment is a row of its own now.
      routed.x = out;
      routed.rows = each.count;
      routed.top_k = 1;
    }
    experts_gate_up(routed, launcher);
  }
  if (!args.shared_low.present()) return act;
  if (in_fp4(context, args.shared_low, args.shared_high)) {
    act.shared = gate_up_fp4(
        context, args,
        {.which = ExpertMatrices::shared, .down = ways.shared_down, .codes = ways.codes}, launcher);
    return act;
  }
  ExpertArgs shared = args;
  shared.routed_low = shared.routed_high = {};
  if (rounds(args.shared_low)) {
    RoundInputs all = rounding;
    all.weight = args.shared_low;
    all.count = args.rows;
    round_inputs(all, launcher);
    shared.x = out;
  }
  experts_gate_up(shared, launcher);
  return act;
}

void experts_down(const Context& context, const ExpertArgs& args, const ActCodes& act,
                  const Launcher& launcher) {
  if (in_f32(context)) return experts_down_f32(context, args, launcher);
  if (!declares(context)) return experts_down(args, launcher);
  const auto round = [&](const DeviceLinear& weight, int32_t count, int64_t begin,
                         const int32_t* matrix) {
    uint16_t* rows = args.act + begin * args.act_stride;
    if (weight.present() && rounds(weight))
      round_inputs({.weight = weight,
                    .count = count,
                    .x = rows,
                    .x_stride = args.act_stride,
                    .out = rows,
                    .out_stride = args.act_stride,
                    .matrix = matrix},
                   launcher);
  };
  ExpertArgs rest = args;
  if (in_fp4(context, args.routed_low)) {
    down_fp4(context, args, {.which = ExpertMatrices::routed, .codes = act.routed}, launcher);
    rest.routed_low = rest.routed_high = {};
  }
  if (in_fp4(context, args.shared_low)) {
    down_fp4(context, args, {.which = ExpertMatrices::shared, .codes = act.shared}, launcher);
    rest.shared_low = rest.shared_high = {};
  }
  round(rest.routed_low, args.rows * args.top_k, 0, args.routing.experts);
  round(rest.shared_low, args.rows, args.shared_begin, nullptr);
  if (rest.routed_low.present() || rest.shared_low.present()) experts_down(rest, launcher);
}

Result<WeightStore> load_weights(const Weights& weights, const ModelConfig& config,
                                 const Launcher& launcher, const BackendOptions& options) {
  if (options.activations == Activations::declared) TRY(check_declared(weights));
  return WeightStore::load(weights, config, launcher,
                           {.activations = options.activations,
                            .input_scales = options.input_scales,
                            .kv_scales = options.kv_scales});
}

}  // namespace nibble::cuda
