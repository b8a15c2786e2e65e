// Chooses the linears that are multiplied as 4-bit codes on a card, and their tiles: pure functions
// of the matrix, the number of rows and the card, so that they can be printed and tested without
// one.
#pragma once

#include <cstdint>
#include <string>

#include "backend/cuda/ops/fp4/fp4_gemm.h"
#include "backend/cuda/runtime/architecture.h"

namespace nibble::cuda {

/// True if `weight` is in NVFP4, declares inputs in NVFP4 under an input scale, and the card
/// multiplies such codes. (Its inputs are then rounded as `--activations declared` has them.)
bool takes_fp4(const DeviceLinear& weight, const Architecture& card);

struct Fp4Plan {
  Architecture::Fp4 matrix = Architecture::Fp4::off;
  Fp4Output output = Fp4Output::bf16;
  int32_t tokens = 0;  // rows of x in a tile
  int32_t stages = 0;
  int32_t shared_bytes = 0;
  int32_t blocks = 0;  // thread blocks; each takes one tile after another

  bool operator==(const Fp4Plan&) const = default;
  std::string text() const;
};
/// CHECKs that the card multiplies 4-bit codes. `matrices`: experts that the rows are spread over.
Fp4Plan select_fp4(const Fp4Gemm& gemm, int64_t matrices, const Architecture& card);

// ---- sizes that the kernel and the choice share ----

inline constexpr int kFp4Threads = 256;
inline constexpr int kFp4TileRows = 128;  // rows of W, with swiglu 64 of each matrix
inline constexpr int kFp4FewTokens = 32;  // rows of x in a tile
inline constexpr int kFp4ManyTokens = 128;
inline constexpr int kFp4StepColumns = 128;  // columns of a stage
inline constexpr int kFp4SharedMost =
    101376;  // 99 KB, what a block of compute capability 12 may have

/// Returns the rows of one matrix in a tile.
constexpr int fp4_tile_rows(Fp4Output output) {
  return output == Fp4Output::swiglu ? kFp4TileRows / 2 : kFp4TileRows;
}
/// A row of a stage has codes and scales, of W as of x.
constexpr int fp4_stage_bytes(int tokens) {
  return (kFp4TileRows + tokens) * (kFp4StepColumns / 2 + kFp4StepColumns / 16);
}
constexpr int fp4_stages(int tokens) { return tokens == kFp4ManyTokens ? 5 : 4; }
constexpr int fp4_shared_bytes(int tokens) { return fp4_stages(tokens) * fp4_stage_bytes(tokens); }
/// Returns the thread blocks that one multiprocessor of compute capability 12 holds.
constexpr int fp4_blocks_each(int tokens) { return tokens == kFp4ManyTokens ? 1 : 2; }
static_assert(fp4_shared_bytes(kFp4ManyTokens) <= kFp4SharedMost);
// Two blocks of narrow tiles share a multiprocessor, which keeps 1 KB for each.
static_assert(2 * (fp4_shared_bytes(kFp4FewTokens) + 1024) <= kFp4SharedMost + 1024);

}  // namespace nibble::cuda
