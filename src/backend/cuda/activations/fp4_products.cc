// Rows of 4-bit codes and their products, as sequences of two launches.
#include "backend/cuda/activations/fp4_products.h"

#include <algorithm>

#include "base/concat.h"

namespace nibble::cuda {
namespace {

/// The lists of routing: up to 8 assignments of one expert in each entry. Inputs and results are
/// those of assignments.
Fp4List lists_of(const Routing& routing) {
  return {.list = reinterpret_cast<const int32_t*>(routing.items),
          .stride = 4,
          .rows_max = 8,
          .count = routing.item_count,
          .gather = routing.assignments,
          .scatter = routing.assignments};
}

int32_t assignments_of(const ExpertArgs& args) { return args.rows * args.top_k; }
/// Evenly spread choices reach as many experts as there are assignments.
int64_t experts_met(const ExpertArgs& args) { return std::min(assignments_of(args), args.experts); }

}  // namespace

Result<void> emulate_fp4(Activations activations, Launcher& launcher) {
  if (activations != Activations::declared)
    return make_error(ErrorCode::unsupported, {.what = "emulated products of 4-bit codes",
                                               .expected = "--activations declared",
                                               .found = activations_name(activations)});
  if (launcher.card.has_fp4_mma())
    return make_error(ErrorCode::unsupported,
                      {.what = "emulated products of 4-bit codes",
                       .expected = "a card without an instruction for them",
                       .found = concat("code for ", launcher.card.code.name()),
                       .advice = "leave --emulate-fp4 out"});
  launcher.card.fp4 = Architecture::Fp4::software;
  fp4_gemm_prepare(launcher);
  return {};
}

bool in_fp4(const Context& context, const DeviceLinear& weight) {
  return weight.present() && takes_fp4(weight, context.launcher.card);
}
bool in_fp4(const Context& context, const DeviceLinear& gate, const DeviceLinear& up) {
  return in_fp4(context, gate) && in_fp4(context, up) &&
         gate.rows % fp4_tile_rows(Fp4Output::swiglu) == 0;
}

Fp4Rows make_fp4_rows(const Context& context, const QuantizeRows& args, const Launcher& launcher) {
  const DeviceSlice& memory = context.work.rounded;
  CHECK(args.count * fp4_row_bytes(args.weight.cols) <= memory.bytes(), args.count, " rows of ",
        args.weight.cols, " columns in ", memory.bytes(), " bytes");
  QuantizeRows rows = args;
  rows.out = cut_fp4_rows(memory.as<uint8_t>(), args.count, args.weight.cols);
  quantize_rows(rows, launcher);
  return rows.out;
}

void linear_fp4(const Context& context, const LinearArgs& args, const Launcher& launcher) {
  const LinearOutput& output = args.outputs[0];
  CHECK(args.count == 1 && output.finish != Finish::convolve, args.count, " outputs");
  const Fp4Rows x = make_fp4_rows(context,
                                  {.weight = output.weight,
                                   .count = args.rows,
                                   .x = args.x,
                                   .x_stride = args.x_stride,
                                   .from = args.gather},
                                  launcher);
  fp4_gemm({.x = x,
            .rows = args.rows,
            .weight = output.weight,
            .output = output.finish == Finish::add ? Fp4Output::add : Fp4Output::f32,
            .y = output.y,
            .y_stride = output.y_stride},
           launcher);
}

void routed_gate_up_fp4(const Context& context, const ExpertArgs& args, const Launcher& launcher) {
  const Fp4Rows x = make_fp4_rows(context,
                                  {.weight = args.routed_low,
                                   .count = assignments_of(args),
                                   .x = args.x,
                                   .x_stride = args.x_stride,
                                   .share = args.top_k,
                                   .matrix = args.routing.experts},
                                  launcher);
  fp4_gemm({.x = x,
            .rows = assignments_of(args),
            .weight = args.routed_low,
            .up = args.routed_high,
            .output = Fp4Output::swiglu,
            .order = ColumnOrder::plain,
            .y = args.act,
            .y_stride = args.act_stride,
            .experts = lists_of(args.routing)},
           launcher, experts_met(args));
}

void shared_gate_up_fp4(const Context& context, const ExpertArgs& args, const Launcher& launcher) {
  const Fp4Rows x = make_fp4_rows(
      context,
      {.weight = args.shared_low, .count = args.rows, .x = args.x, .x_stride = args.x_stride},
      launcher);
  fp4_gemm({.x = x,
            .rows = args.rows,
            .weight = args.shared_low,
            .up = args.shared_high,
            .output = Fp4Output::swiglu,
            .order = ColumnOrder::plain,
            .y = args.act + args.shared_begin * args.act_stride,
            .y_stride = args.act_stride},
           launcher);
}

void routed_down_fp4(const Context& context, const ExpertArgs& args, const Launcher& launcher) {
  const Fp4Rows x = make_fp4_rows(context,
                                  {.weight = args.routed_low,
                                   .count = assignments_of(args),
                                   .x = args.act,
                                   .x_stride = args.act_stride,
                                   .matrix = args.routing.experts},
                                  launcher);
  fp4_gemm({.x = x,
            .rows = assignments_of(args),
            .weight = args.routed_low,
            .output = Fp4Output::f32,
            .y = args.y,
            .y_stride = args.y_stride,
            .experts = lists_of(args.routing)},
           launcher, experts_met(args));
}

void shared_down_fp4(const Context& context, const ExpertArgs& args, const Launcher& launcher) {
  const Fp4Rows x = make_fp4_rows(context,
                                  {.weight = args.shared_low,
                                   .count = args.rows,
                                   .x = args.act + args.shared_begin * args.act_stride,
                                   .x_stride = args.act_stride},
                                  launcher);
  fp4_gemm({.x = x,
            .rows = args.rows,
            .weight = args.shared_low,
            .output = Fp4Output::f32,
            .y = args.y + args.shared_begin * args.y_stride,
            .y_stride = args.y_stride},
           launcher);
}

}  // namespace nibble::cuda
