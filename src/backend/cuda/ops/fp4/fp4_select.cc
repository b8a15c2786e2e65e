// The conditions under which products run on 4-bit codes, and their tiles.
#include "backend/cuda/ops/fp4/fp4_select.h"

#include <algorithm>
#include <string_view>

#include "base/check.h"
#include "base/concat.h"

namespace nibble::cuda {

bool takes_fp4(const DeviceLinear& weight, const Architecture& card) {
  return card.fp4 != Architecture::Fp4::off && weight.format == Format::nvfp4 &&
         weight.activations == ActivationFormat::nvfp4 && weight.cols % kFp4StepColumns == 0;
}

Fp4Plan select_fp4(const Fp4Gemm& gemm, int64_t matrices, const Architecture& card) {
  CHECK(card.fp4 != Architecture::Fp4::off, "a card that does not multiply 4-bit codes");
  const bool list = gemm.experts.present();
  const int64_t rows_each = list ? gemm.rows / std::max<int64_t>(matrices, 1) : gemm.rows;
  Fp4Plan plan{.matrix = card.fp4,
               .output = gemm.output,
               .tokens = rows_each <= kFp4FewTokens ? kFp4FewTokens : kFp4ManyTokens};
  plan.stages = fp4_stages(plan.tokens);
  plan.shared_bytes = fp4_shared_bytes(plan.tokens);
  plan.blocks = std::max(card.multiprocessors, 1) * fp4_blocks_each(plan.tokens);
  // The number of tiles of experts is known on the device alone.
  const int64_t row_tiles =
      (gemm.weight.rows + fp4_tile_rows(gemm.output) - 1) / fp4_tile_rows(gemm.output);
  const int64_t tiles = row_tiles * ((gemm.rows + plan.tokens - 1) / plan.tokens);
  if (!list) plan.blocks = static_cast<int32_t>(std::min<int64_t>(plan.blocks, tiles));
  return plan;
}

std::string Fp4Plan::text() const {
  constexpr std::string_view kMatrices[] = {"none", "fp4", "fp4 emulated"};
  constexpr std::string_view kOutputs[] = {"bf16", "f32", "f32, added", "swiglu"};
  return concat(kMatrices[static_cast<int>(matrix)], " nvfp4 x nvfp4 to ",
                kOutputs[static_cast<int>(output)], ", tiles of ", kFp4TileRows, " x ", tokens,
                ", ", blocks, " blocks, ", stages, " stages, ", shared_bytes, " bytes shared");
}

}  // namespace nibble::cuda
