// Rows of codes and their products, as sequences of two launches.
#include "backend/cuda/activations/quantized_products.h"

#include <algorithm>

#include "base/concat.h"

namespace nibble::cuda {
namespace {

/// The lists of routing: up to 8 assignments of one expert in each entry. Inputs and results are
/// those of assignments.
QuantizedExperts lists_of(const Routing& routing) {
  return {.list = reinterpret_cast<const int32_t*>(routing.items),
          .stride = 4,
          .rows_max = 8,
          .count = routing.item_count,
          .gather = routing.assignments,
          .scatter = routing.assignments};
}

/// A Part has the matrices of routed experts or of the shared one, and the rows of args.act and
/// args.y that are theirs.
struct Part {
  const DeviceLinear& low;
  const DeviceLinear& high;
  int32_t count = 0;                // rows
  int64_t begin = 0;                // the first
  int32_t share = 1;                // adjacent rows made of one row of args.x
  const int32_t* matrix = nullptr;  // [count], the expert of each row
  QuantizedExperts lists;
  int64_t matrices = 1;  // that are read
};
Part part_of(const ExpertArgs& args, ExpertMatrices which) {
  if (which == ExpertMatrices::shared)
    return {.low = args.shared_low,
            .high = args.shared_high,
            .count = args.rows,
            .begin = args.shared_begin};
  const int32_t assignments = args.rows * args.top_k;
  return {.low = args.routed_low,
          .high = args.routed_high,
          .count = assignments,
          .share = args.top_k,
          .matrix = args.routing.experts,
          .lists = lists_of(args.routing),
          // Evenly spread choices reach as many experts as there are assignments.
          .matrices = std::min(assignments, args.experts)};
}

}  // namespace

Result<void> take_fp4_products(Activations activations, Fp4Products way, Launcher& launcher) {
  if (way == Fp4Products::widened) return {};
  const bool machine = way == Fp4Products::instruction;
  if (activations != Activations::declared)
    return make_error(ErrorCode::unsupported, {.what = machine ? "products of 4-bit codes"
                                                               : "emulated products of 4-bit codes",
                                               .expected = "--activations declared",
                                               .found = activations_name(activations)});
  if (machine && !launcher.card.has_fp4_mma())
    return make_error(ErrorCode::unsupported,
                      {.what = "products of 4-bit codes",
                       .expected = "a card of compute capability 12.0 or 12.1",
                       .found = concat("code for ", launcher.card.code.name())});
  if (!machine && launcher.card.has_fp4_mma())
    return make_error(ErrorCode::unsupported,
                      {.what = "emulated products of 4-bit codes",
                       .expected = "a card without an instruction for them",
                       .found = concat("code for ", launcher.card.code.name()),
                       .advice = "leave --emulate-fp4 out"});
  launcher.card.fp4 = machine ? Architecture::Fp4::machine : Architecture::Fp4::software;
  quantized_gemm_prepare(launcher);
  return {};
}

bool in_fp4(const Context& context, const DeviceLinear& weight) {
  return weight.present() && takes_fp4(weight, context.launcher.card);
}
bool in_fp4(const Context& context, const DeviceLinear& gate, const DeviceLinear& up) {
  return in_fp4(context, gate) && in_fp4(context, up) &&
         gate.rows % quantized_tile_rows(QuantizedOutput::swiglu) == 0;
}

bool makes_codes(const Context& context, const MlpWeights& mlp) {
  return in_fp4(context, mlp.gate, mlp.up) && in_fp4(context, mlp.down);
}

bool in_fp8(const Context& context, const DeviceLinear& weight) {
  return weight.present() && takes_fp8(weight, context.launcher.card);
}

QuantizedInput cut_rows(const DeviceSlice& memory, int64_t count, const DeviceLinear& weight) {
  const int64_t cols = weight.cols;
  const bool fp4 = weight.activations == ActivationFormat::nvfp4;
  CHECK(count * (fp4 ? fp4_row_bytes(cols) : fp8_row_bytes(cols)) <= memory.bytes(), count,
        " rows of ", cols, " columns in ", memory.bytes(), " bytes");
  auto* codes = memory.as<uint8_t>();
  return fp4 ? cut_fp4_rows(codes, count, cols)
             : cut_fp8_rows(codes, count, cols, weight.activations);
}

QuantizedInput codes_in(uint16_t* act, int64_t count, int64_t stride, const DeviceLinear& weight) {
  return cut_rows({act, count * stride * int64_t{sizeof(uint16_t)}}, count, weight);
}

QuantizedInput make_quantized_rows(const Context& context, const RoundInputs& args,
                                   const Launcher& launcher) {
  const QuantizedInput out = cut_rows(context.work.rounded, args.count, args.weight);
  quantize_rows({.weight = args.weight,
                 .count = args.count,
                 .x = args.x,
                 .x_stride = args.x_stride,
                 .order = args.order,
                 .from = args.from,
                 .share = args.share,
                 .to = args.to,
                 .matrix = args.matrix,
                 .out = out},
                launcher);
  return out;
}

void linear_fp4(const Context& context, const LinearArgs& args, const QuantizedInput& codes,
                const Launcher& launcher) {
  const LinearOutput& output = args.outputs[0];
  CHECK(args.count == 1 && output.finish != Finish::convolve, args.count, " outputs");
  const QuantizedInput x = codes.present() ? codes
                                           : make_quantized_rows(context,
                                                                 {.weight = output.weight,
                                                                  .count = args.rows,
                                                                  .x = args.x,
                                                                  .x_stride = args.x_stride,
                                                                  .from = args.gather},
                                                                 launcher);
  quantized_gemm(
      {.x = x,
       .rows = args.rows,
       .weight = output.weight,
       .output = output.finish == Finish::add ? QuantizedOutput::add : QuantizedOutput::f32,
       .y = output.y,
       .y_stride = output.y_stride},
      launcher);
}

QuantizedInput gate_up_fp4(const Context& context, const ExpertArgs& args, const ExpertCodes& how,
                           const Launcher& launcher) {
  const Part part = part_of(args, how.which);
  const QuantizedInput x = how.codes.present() ? how.codes
                                               : make_quantized_rows(context,
                                                                     {.weight = part.low,
                                                                      .count = part.count,
                                                                      .x = args.x,
                                                                      .x_stride = args.x_stride,
                                                                      .share = part.share,
                                                                      .matrix = part.matrix},
                                                                     launcher);
  uint16_t* act = args.act + part.begin * args.act_stride;
  const QuantizedInput codes =
      makes_codes(context, {.gate = part.low, .up = part.high, .down = how.down})
          ? codes_in(act, part.count, args.act_stride, how.down)
          : QuantizedInput{};
  quantized_gemm(
      {.x = x,
       .rows = part.count,
       .weight = part.low,
       .up = part.high,
       .output = codes.present() ? QuantizedOutput::swiglu_codes : QuantizedOutput::swiglu,
       .order = ColumnOrder::plain,
       .y = act,
       .y_stride = args.act_stride,
       .codes = codes,
       .next = how.down,
       .experts = part.lists},
      launcher, part.matrices);
  return codes;
}

void down_fp4(const Context& context, const ExpertArgs& args, const ExpertCodes& how,
              const Launcher& launcher) {
  const Part part = part_of(args, how.which);
  const QuantizedInput x = how.codes.present()
                               ? how.codes
                               : make_quantized_rows(context,
                                                     {.weight = part.low,
                                                      .count = part.count,
                                                      .x = args.act + part.begin * args.act_stride,
                                                      .x_stride = args.act_stride,
                                                      .matrix = part.matrix},
                                                     launcher);
  quantized_gemm({.x = x,
                  .rows = part.count,
                  .weight = part.low,
                  .output = QuantizedOutput::f32,
                  .y = args.y + part.begin * args.y_stride,
                  .y_stride = args.y_stride,
                  .experts = part.lists},
                 launcher, part.matrices);
}

}  // namespace nibble::cuda
