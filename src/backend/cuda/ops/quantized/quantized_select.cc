// The conditions under which products run on codes, and their tiles.
#include "backend/cuda/ops/quantized/quantized_select.h"

#include <algorithm>
#include <string_view>

#include "backend/cuda/ops/linear/linear_select.h"
#include "base/check.h"
#include "base/concat.h"

namespace nibble::cuda {

bool takes_fp4(const DeviceLinear& weight, const Architecture& card) {
  return card.fp4 != Architecture::Fp4::off && weight.format == Format::nvfp4 &&
         weight.activations == ActivationFormat::nvfp4 &&
         weight.cols % quantized_step_columns(Format::nvfp4) == 0 &&
         card.uses_tensor_memory() == (weight.order != CodeOrder::words);
}

bool fits_blocks(const DeviceLinear& weight) {
  return weight.present() && weight.format == Format::nvfp4 &&
         weight.activations == ActivationFormat::nvfp4 && weight.order == CodeOrder::words &&
         weight.rows % kScaleBlockRows == 0;
}

bool fits_blocks(const DeviceLinear& gate, const DeviceLinear& up, const DeviceLinear& down) {
  return fits_blocks(gate) && fits_blocks(up) && fits_blocks(down);
}

bool takes_fp8(const DeviceLinear& weight, const Architecture& card) {
  // Code that converts E4M3 has the matrix instruction too.
  return card.fp4 != Architecture::Fp4::off && !card.uses_tensor_memory() && card.converts_fp8() &&
         weight.format == Format::fp8 &&
         (weight.activations == ActivationFormat::fp8_token ||
          weight.activations == ActivationFormat::fp8_tensor ||
          weight.activations == ActivationFormat::fp8_group) &&
         weight.cols % kFp8Block == 0;
}

namespace {

/// Returns the rows of x that a matrix is expected to have.
int64_t rows_of_matrix(const QuantizedGemm& gemm, int64_t matrices) {
  return gemm.experts.present() ? gemm.rows / std::max<int64_t>(matrices, 1) : gemm.rows;
}

/// CUTLASS chooses stages and shared memory when it is compiled.
QuantizedPlan select_sm100(const QuantizedGemm& gemm, int64_t matrices, const Architecture& card) {
  const int32_t many = gemm.experts.present() ? kSm100ExpertTokens : kSm100ManyTokens;
  return {.format = Format::nvfp4,
          .matrix = card.fp4,
          .order = gemm.weight.order,
          .output = gemm.output,
          .tokens = rows_of_matrix(gemm, matrices) <= kSm100FewTokens ? kSm100FewTokens : many};
}

}  // namespace

QuantizedPlan select_quantized(const QuantizedGemm& gemm, int64_t matrices,
                               const Architecture& card) {
  if (gemm.weight.order != CodeOrder::words) return select_sm100(gemm, matrices, card);
  const Format format = gemm.weight.format;
  CHECK(format == Format::fp8 ? card.converts_fp8() : card.fp4 != Architecture::Fp4::off,
        "a card that does not multiply codes of ", format_name(format));
  const bool list = gemm.experts.present();
  const int64_t rows_each = rows_of_matrix(gemm, matrices);
  QuantizedPlan plan{
      .format = format,
      .matrix = format == Format::nvfp4 ? card.fp4 : Architecture::Fp4::off,
      .output = gemm.output,
      .tokens = rows_each <= kQuantizedFewTokens ? kQuantizedFewTokens : kQuantizedManyTokens};
  plan.stages = quantized_stages(plan.tokens);
  plan.shared_bytes = quantized_shared_bytes(format, plan.tokens) +
                      quantized_result_bytes(plan.output, plan.tokens);
  plan.blocks = std::max(card.multiprocessors, 1) * quantized_blocks_each(plan.tokens);
  // The number of tiles of experts is known on the device alone.
  const int64_t row_tiles =
      (gemm.weight.rows + quantized_tile_rows(gemm.output) - 1) / quantized_tile_rows(gemm.output);
  const int64_t tiles = row_tiles * ((gemm.rows + plan.tokens - 1) / plan.tokens);
  if (!list) plan.blocks = static_cast<int32_t>(std::min<int64_t>(plan.blocks, tiles));
  return plan;
}

std::string QuantizedPlan::text() const {
  constexpr std::string_view kMatrices[] = {"", "fp4 ", "fp4 emulated ", "fp4 emulated "};
  constexpr std::string_view kOutputs[] = {"bf16", "f32", "f32, added", "swiglu",
                                           "swiglu as nvfp4"};
  const std::string product =
      concat(kMatrices[static_cast<int>(matrix)], format_name(format), " x ", format_name(format),
             " to ", kOutputs[static_cast<int>(output)]);
  if (order != CodeOrder::words)
    return concat(product, " by tensor memory, tiles of ", kQuantizedTileRows, " x ", tokens);
  return concat(product, ", tiles of ", kQuantizedTileRows, " x ", tokens, ", ", blocks,
                " blocks, ", stages, " stages, ", shared_bytes, " bytes shared");
}

}  // namespace nibble::cuda
