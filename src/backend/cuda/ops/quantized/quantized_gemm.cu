// This file launches the products of codes; the kernel is quantized_tile.cuh.
#include "backend/cuda/ops/linear/linear_select.h"
#include "backend/cuda/ops/quantized/blocks_in_software.h"
#include "backend/cuda/ops/quantized/quantized_tile.cuh"
#include "backend/cuda/ops/quantized/sm100/products_sm100.h"
#include "backend/cuda/runtime/launch.cuh"
#include "backend/cuda/runtime/launch_log.h"

namespace nibble::cuda {
namespace {

using Kernel = void (*)(QuantizedArgs);

template <typename Operands, QuantizedOutput... kOutputs>
Kernel kernel_with(const QuantizedPlan& plan) {
  return with_value<kOutputs...>(plan.output, [&]<QuantizedOutput kOutput>() -> Kernel {
    return with_value<kQuantizedFewTokens, kQuantizedManyTokens>(
        plan.tokens,
        [&]<int kTokens>() -> Kernel { return quantized_kernel<Operands, kOutput, kTokens>; });
  });
}
template <typename Mma>
Kernel nvfp4_kernel(const QuantizedPlan& plan) {
  return kernel_with<Nvfp4Operands<Mma>, QuantizedOutput::bf16, QuantizedOutput::f32,
                     QuantizedOutput::add, QuantizedOutput::swiglu, QuantizedOutput::swiglu_codes>(
      plan);
}
Kernel kernel_of(const QuantizedPlan& plan) {
  if (plan.format == Format::fp8)
    return kernel_with<Fp8Operands, QuantizedOutput::bf16, QuantizedOutput::f32,
                       QuantizedOutput::add, QuantizedOutput::swiglu>(plan);
  return plan.matrix == Architecture::Fp4::machine ? nvfp4_kernel<MachineFp4>(plan)
                                                   : nvfp4_kernel<SoftwareFp4>(plan);
}

/// Returns the bytes of the matrices, each read once.
int64_t bytes_of(const QuantizedGemm& gemm, int64_t matrices) {
  return weight_bytes(gemm.weight, matrices) +
         (is_paired(gemm.output) ? weight_bytes(gemm.up, matrices) : 0);
}

void check(const QuantizedGemm& gemm) {
  constexpr int kColumns = 128;  // a stage of NVFP4, and what FP8 adds up before the rest
  const DeviceLinear& w = gemm.weight;
  const bool paired = is_paired(gemm.output);
  CHECK(w.format != Format::bf16 && w.cols % kColumns == 0, w.rows, " x ", w.cols);
  CHECK(!paired || (w.rows % quantized_tile_rows(gemm.output) == 0 && gemm.y_stride % 2 == 0 &&
                    gemm.up.rows == w.rows && gemm.up.cols == w.cols &&
                    gemm.up.format == w.format && gemm.up.layout == w.layout),
        "gate of ", w.rows, " x ", w.cols, ", up of ", gemm.up.rows, " x ", gemm.up.cols,
        ", outputs at ", gemm.y_stride);
  CHECK(gemm.output != QuantizedOutput::swiglu_codes ||
            (w.format == Format::nvfp4 && gemm.codes.present() && gemm.next.cols >= w.rows &&
             gemm.next.activations == ActivationFormat::nvfp4),
        "codes of ", w.rows, " columns for a matrix of ", gemm.next.cols);
}

void check_blocks(const QuantizedGemm& gemm) {
  const bool paired = gemm.output == QuantizedOutput::swiglu;
  const auto in_pair = [](const DeviceLinear& w) { return w.order == CodeOrder::paired_blocks; };
  CHECK(in_pair(gemm.weight) == paired && (!paired || in_pair(gemm.up)) &&
            (!paired || gemm.order == ColumnOrder::packed) &&
            gemm.experts.present() == (gemm.experts.groups != nullptr) &&
            gemm.x.scale_order == ScaleOrder::blocks,
        "matrices or inputs in the wrong order");
  const bool wide = gemm.output == QuantizedOutput::f32 || gemm.output == QuantizedOutput::add;
  const int64_t aligned = wide ? 16 / sizeof(float) : 16 / sizeof(uint16_t);
  CHECK(gemm.y_stride % aligned == 0 && reinterpret_cast<uintptr_t>(gemm.y) % 16 == 0,
        "outputs at ", gemm.y_stride);
}

void multiply_blocks(const QuantizedGemm& gemm, const QuantizedPlan& plan,
                     const Launcher& launcher) {
  if ((launcher.skipped & step_bit(launcher.step)) != 0) return;  // addresses may mean nothing
  if (plan.matrix == Architecture::Fp4::blocks) return multiply_blocks(gemm, launcher);
  if (gemm.experts.present()) return experts_sm100(gemm, plan.tokens, launcher);
  linear_sm100(gemm, plan.tokens, launcher);
}

void prepare(Format format, const Launcher& launcher) {
  for (const auto output : {QuantizedOutput::bf16, QuantizedOutput::f32, QuantizedOutput::add,
                            QuantizedOutput::swiglu, QuantizedOutput::swiglu_codes}) {
    if (output == QuantizedOutput::swiglu_codes && format == Format::fp8) continue;
    for (const int rows : {kQuantizedFewTokens, kQuantizedManyTokens}) {
      const QuantizedPlan plan = select_quantized(
          {.rows = rows, .weight = {.format = format}, .output = output}, 1, launcher.card);
      launcher.device->allow_shared(kernel_of(plan), plan.shared_bytes);
    }
  }
}

}  // namespace

void quantized_gemm_prepare(const Launcher& launcher) {
  if (launcher.card.fp4 == Architecture::Fp4::blocks) return;
  if (launcher.card.uses_tensor_memory()) {
    prepare_linear_sm100(launcher);
    return prepare_experts_sm100(launcher);
  }
  for (const Format format : {Format::nvfp4, Format::fp8}) {
    const bool made = format == Format::fp8 ? launcher.card.converts_fp8()
                                            : launcher.card.fp4 != Architecture::Fp4::off;
    if (made) prepare(format, launcher);
  }
}

void quantized_gemm(const QuantizedGemm& gemm, const Launcher& launcher, int64_t matrices) {
  if (gemm.rows == 0 || gemm.weight.rows == 0) return;
  check(gemm);
  const QuantizedPlan plan = select_quantized(gemm, matrices, launcher.card);
  if (plan.order != CodeOrder::words) {
    check_blocks(gemm);
    log_launch(launcher, plan, {.weights = bytes_of(gemm, matrices)});
    return multiply_blocks(gemm, plan, launcher.in_order());
  }
  const int rows_each = quantized_tile_rows(gemm.output);
  const int32_t most = gemm.experts.present() ? gemm.experts.rows_max : gemm.rows;
  const QuantizedArgs args{.gemm = gemm,
                           .k_steps = gemm.weight.cols / quantized_step_columns(plan.format),
                           .row_tiles = (gemm.weight.rows + rows_each - 1) / rows_each,
                           .parts = (most + plan.tokens - 1) / plan.tokens};
  log_launch(launcher, plan, {.weights = bytes_of(gemm, matrices)});
  launch(kernel_of(plan), launcher.in_order(), static_cast<unsigned>(plan.blocks),
         kQuantizedThreads, static_cast<size_t>(plan.shared_bytes), args);
}

}  // namespace nibble::cuda
