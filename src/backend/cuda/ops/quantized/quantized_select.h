// Chooses the linears that are multiplied as codes of 4 or 8 bits on a card, and their tiles: pure
// functions of the matrix, the number of rows and the card, so that they can be printed and tested
// without one.
#pragma once

#include <cstdint>
#include <string>

#include "backend/cuda/ops/quantized/quantized_gemm.h"
#include "backend/cuda/runtime/architecture.h"

namespace nibble::cuda {

/// True if `weight` is in NVFP4, declares inputs in NVFP4 under an input scale, and the card
/// multiplies such codes, in the order that it has. (Its inputs are then rounded as
/// `--activations declared` has them.)
bool takes_fp4(const DeviceLinear& weight, const Architecture& card);
/// True if `weight` is in FP8, declares inputs in FP8, and the card multiplies E4M3 codes where it
/// multiplies 4-bit ones within a warp. It is for prompts alone: generated rows are bound by the
/// bytes of W, which are the same either way.
bool takes_fp8(const DeviceLinear& weight, const Architecture& card);
/// True if `weight` may be put into CodeOrder::blocks for products by tensor memory.
bool fits_blocks(const DeviceLinear& weight);
/// The same of gate, up and down, all three or none: gate and up write what down reads.
bool fits_blocks(const DeviceLinear& gate, const DeviceLinear& up, const DeviceLinear& down);

struct QuantizedPlan {
  Format format = Format::nvfp4;
  Architecture::Fp4 matrix = Architecture::Fp4::off;  // nvfp4: the way of its products
  CodeOrder order = CodeOrder::words;                 // other ones: by tensor memory
  QuantizedOutput output = QuantizedOutput::bf16;
  int32_t tokens = 0;  // rows of x in a tile
  int32_t stages = 0;
  int32_t shared_bytes = 0;
  int32_t blocks = 0;  // thread blocks; each takes one tile after another

  bool operator==(const QuantizedPlan&) const = default;
  std::string text() const;
};
/// CHECKs that the card multiplies such codes. `matrices`: experts that the rows are spread over.
QuantizedPlan select_quantized(const QuantizedGemm& gemm, int64_t matrices,
                               const Architecture& card);

// ---- sizes that the kernel and the choice share ----

inline constexpr int kQuantizedThreads = 256;
inline constexpr int kQuantizedTileRows = 128;  // rows of W, with swiglu 64 of each matrix
inline constexpr int kQuantizedFewTokens = 32;  // rows of x in a tile
inline constexpr int kQuantizedManyTokens = 128;
inline constexpr int kQuantizedStepBytes = 64;  // codes of a row in a stage
inline constexpr int kQuantizedSharedMost =
    101376;  // 99 KB, what a block of compute capability 12 may have

// These are for compute capability 10 (sm100/): rows of x in a tile of 128 rows of W, one thread
// block for each.
inline constexpr int kSm100FewTokens = 64;
inline constexpr int kSm100ManyTokens = 256;    // of a linear
inline constexpr int kSm100ExpertTokens = 128;  // of experts

/// Returns the rows of one matrix in a tile.
constexpr int quantized_tile_rows(QuantizedOutput output) {
  return is_paired(output) ? kQuantizedTileRows / 2 : kQuantizedTileRows;
}
/// Returns the columns of a stage.
constexpr int quantized_step_columns(Format format) {
  return format == Format::nvfp4 ? 2 * kQuantizedStepBytes : kQuantizedStepBytes;
}
/// Returns the bytes of scales of a row in a stage.
constexpr int quantized_step_scales(Format format) {
  return format == Format::nvfp4 ? quantized_step_columns(format) / 16 : 0;
}
/// A row of a stage has codes and scales, of W as of x.
constexpr int quantized_stage_bytes(Format format, int tokens) {
  return (kQuantizedTileRows + tokens) * (kQuantizedStepBytes + quantized_step_scales(format));
}
constexpr int quantized_stages(int tokens) { return tokens == kQuantizedManyTokens ? 5 : 4; }
constexpr int quantized_shared_bytes(Format format, int tokens) {
  return quantized_stages(tokens) * quantized_stage_bytes(format, tokens);
}
inline constexpr int kMetTokens = 32;  // whose results become codes at a time
/// Returns the bytes after them through which results become codes: for each 16 columns of a tile
/// of swiglu and each 64 tokens at most, kMetTokens rows of BF16.
constexpr int quantized_result_bytes(QuantizedOutput output, int tokens) {
  if (output != QuantizedOutput::swiglu_codes) return 0;
  constexpr int kTokensEach = 64;
  return quantized_tile_rows(output) * ((tokens + kTokensEach - 1) / kTokensEach) * kMetTokens * 2;
}
/// Returns the thread blocks that one multiprocessor of compute capability 12 holds.
constexpr int quantized_blocks_each(int tokens) { return tokens == kQuantizedManyTokens ? 1 : 2; }
// FP8 has no scales in a stage, so the limits of NVFP4 are the larger ones.
constexpr int quantized_shared_most(int tokens) {
  return quantized_shared_bytes(Format::nvfp4, tokens) +
         quantized_result_bytes(QuantizedOutput::swiglu_codes, tokens);
}
static_assert(quantized_shared_most(kQuantizedManyTokens) <= kQuantizedSharedMost);
// Two blocks of narrow tiles share a multiprocessor, which keeps 1 KB for each.
static_assert(2 * (quantized_shared_most(kQuantizedFewTokens) + 1024) <=
              kQuantizedSharedMost + 1024);

}  // namespace nibble::cuda
