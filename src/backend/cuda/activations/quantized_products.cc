// Rows of codes and their products, as sequences of two launches.
#include "backend/cuda/activations/quantized_products.h"

#include <algorithm>

#include "backend/cuda/activations/lay_weights.h"
#include "base/concat.h"

namespace nibble::cuda {
Result<void> take_fp4_products(Activations activations, Fp4Products way, const ModelConfig& config,
                               WeightStore& weights, Launcher& launcher) {
  if (way == Fp4Products::widened) return {};
  const bool machine = way == Fp4Products::instruction;
  if (activations != Activations::declared)
    return make_error(ErrorCode::unsupported, {.what = machine ? "products of 4-bit codes"
                                                               : "emulated products of 4-bit codes",
                                               .expected = "--activations declared",
                                               .found = activations_name(activations)});
  if (machine && !launcher.card.multiplies_fp4())
    return make_error(ErrorCode::unsupported,
                      {.what = "products of 4-bit codes",
                       .expected = "a card of compute capability 10 or 12",
                       .found = concat("code for ", launcher.card.code.name())});
  if (!machine && launcher.card.has_fp4_mma())
    return make_error(ErrorCode::unsupported,
                      {.what = "emulated products of 4-bit codes",
                       .expected = "a card without an instruction for them",
                       .found = concat("code for ", launcher.card.code.name()),
                       .advice = "leave --emulate-fp4 out"});
  launcher.card.fp4 = machine                      ? Architecture::Fp4::machine
                      : way == Fp4Products::blocks ? Architecture::Fp4::blocks
                                                   : Architecture::Fp4::software;
  quantized_gemm_prepare(launcher);
  return launcher.card.uses_tensor_memory() ? lay_weights(weights, config, launcher)
                                            : Result<void>();
}

bool in_fp4(const Context& context, const DeviceLinear& weight) {
  return weight.present() && takes_fp4(weight, context.launcher.card);
}
bool in_fp4(const Context& context, const DeviceLinear& gate, const DeviceLinear& up) {
  return in_fp4(context, gate) && in_fp4(context, up) &&
         gate.rows % quantized_tile_rows(QuantizedOutput::swiglu) == 0;
}

bool makes_codes(const Context& context, const MlpWeights& mlp) {
  // A matrix in blocks has its inputs' scales in blocks too, which SwiGLU does not write.
  return in_fp4(context, mlp.gate, mlp.up) && in_fp4(context, mlp.down) && !in_blocks(mlp.down);
}

bool in_fp8(const Context& context, const DeviceLinear& weight) {
  return weight.present() && takes_fp8(weight, context.launcher.card);
}

ExpertGroups groups_of(const Context& context) {
  DeviceCarver carver(context.work.groups.as<std::byte>());
  return cut_groups(context.config.moe->experts, 0, carver);
}

ColumnOrder column_order(const DeviceLinear& weight) {
  const bool packed =
      weight.order == CodeOrder::paired_blocks || weight.order == CodeOrder::act_blocks;
  return packed ? ColumnOrder::packed : ColumnOrder::plain;
}

QuantizedInput cut_rows(const DeviceSlice& memory, int64_t count, const DeviceLinear& weight,
                        int64_t parts) {
  const int64_t cols = weight.cols;
  const bool fp4 = weight.activations == ActivationFormat::nvfp4;
  const bool blocks = in_blocks(weight);
  CHECK(count * (fp4 ? fp4_row_bytes(cols) : fp8_row_bytes(cols)) +
                (blocks ? fp4_filling_bytes(parts, cols) : 0) <=
            memory.bytes(),
        count, " rows of ", cols, " columns in ", memory.bytes(), " bytes");
  auto* codes = memory.as<uint8_t>();
  return fp4 ? cut_fp4_rows(codes, count, cols, blocks ? ScaleOrder::blocks : ScaleOrder::rows)
             : cut_fp8_rows(codes, count, cols, weight.activations);
}

QuantizedInput codes_in(uint16_t* act, int64_t count, int64_t stride, const DeviceLinear& weight) {
  return cut_rows({act, count * stride * int64_t{sizeof(uint16_t)}}, count, weight);
}

QuantizedInput make_quantized_rows(const Context& context, const RoundInputs& args,
                                   const Launcher& launcher) {
  const bool grouped = in_blocks(args.weight) && args.matrix != nullptr;
  const int64_t parts = grouped ? std::min(args.count, context.config.moe->experts) : 1;
  QuantizedInput out = cut_rows(context.work.rounded, args.count, args.weight, parts);
  if (grouped) out.scale_shift = groups_of(context).shift;
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
  const QuantizedInput x = codes.present()
                               ? codes
                               : make_quantized_rows(context,
                                                     {.weight = output.weight,
                                                      .count = args.rows,
                                                      .x = args.x,
                                                      .x_stride = args.x_stride,
                                                      .from = args.gather,
                                                      .order = column_order(output.weight)},
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

}  // namespace nibble::cuda
